// The two engines of policies with queues: where nothing is left to choose, walking the ranks says
// of every instruction what the events say in the order of time.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "core/program/lower.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/channels.hpp"
#include "sim/queues.hpp"
#include "tests/property/two_readings.hpp"
#include "tests/reference/random_order.hpp"

namespace pipewright::tests {
namespace queues_test {

struct Seen {
  int walked = 0, stuck = 0, chosen = 0;
};

void expect_equal(const Program& program, const CostTable& costs, const std::string& what,
                  Seen& seen) {
  const sim::Durations durations(program, costs);
  const sim::Result events = sim::run_channels(program, costs, durations);
  const auto walked = sim::run_queues(program, costs, durations);
  if (!walked) {
    ++(events.finished ? seen.chosen : seen.stuck);
    return;
  }
  ++seen.walked;
  ASSERT_TRUE(events.finished) << what;
  EXPECT_EQ(walked->makespan_ns, events.timeline.makespan_ns) << what;
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    const auto times = [&](const Timeline& timeline) {
      return std::to_string(timeline.start[id]) + " " + std::to_string(timeline.moving[id]) + " " +
             std::to_string(timeline.end[id]);
    };
    ASSERT_EQ(times(*walked), times(events.timeline)) << program.text(id) << " of\n" << what;
  }
}

TEST(Queues, RandomOrdersUnderRandomPolicies) {
  Seen seen;
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    reference::Dice dice(seed);
    const reference::RandomOrder random = reference::random_order(dice);
    Case c{random.order, reference::random_policy(dice),
           reference::random_costs(dice, random.order), true};
    add_sharding_to_some(dice, c);
    if (contradicts_itself(c.order) || loses_a_rank(c)) continue;
    // What is chosen by time is the other engine's: here are more of the others.
    if (dice.chance(50)) c.policy.in_flight = 0;
    if (dice.chance(50)) c.policy.forward = c.policy.backward = {};
    if (dice.chance(50)) c.policy.batches = {};
    try {
      expect_equal(program_of(c), costs_of(c), shown(c), seen);
    } catch (const std::exception&) {
      continue;  // an order that nobody reads
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(seen.walked, 1500);
  EXPECT_GT(seen.stuck, 200);
  EXPECT_GT(seen.chosen, 100);
}

/// Each rank's way out and way in, as fast as its route or half as fast.
void add_ports(CostTable& costs, int ranks, Sharing sharing, double bytes_per_second) {
  for (int rank = 0; rank < ranks; ++rank) {
    costs.links.push_back({"out", bytes_per_second, sharing});
    costs.links.push_back({"in", rank % 2 == 0 ? bytes_per_second : bytes_per_second / 2, sharing});
  }
  for (std::uint32_t from = 0; from < static_cast<std::uint32_t>(ranks); ++from) {
    for (std::uint32_t to = 0; to < static_cast<std::uint32_t>(ranks); ++to) {
      costs.route_of_edge.push_back({.latency = Nanoseconds(5),
                                     .bytes_per_second = bytes_per_second,
                                     .links = {2 * from, 2 * to + 1}});
    }
  }
}

/// Of four ranks and eight micro-batches, with as few chunks as it takes; nullopt: with none.
std::optional<Order> order_of(const planner::Schedule& schedule) {
  planner::ScheduleRequest request{.ranks = 4, .micro_batches = 8, .chunks = 1, .parameters = {}};
  while (request.chunks < 4 && planner::refusal_of(schedule, request)) ++request.chunks;
  if (planner::refusal_of(schedule, request)) return std::nullopt;
  return schedule.make(request);
}

TEST(Queues, LinksOnWhichTransfersMeetOrDoNot) {
  Seen seen;
  for (const planner::Schedule& schedule : planner::schedules()) {
    const std::optional<Order> made = order_of(schedule);
    if (!made) continue;
    const Order& order = *made;
    const auto stages = static_cast<std::size_t>(order.stages());
    for (const std::int64_t bytes : {0, 1, 333, 40'001}) {
      for (const Sharing sharing : {Sharing::None, Sharing::Fair, Sharing::Serial}) {
        CostTable costs = CostTable::uniform(order.stages(), {.f = Nanoseconds(1009),
                                                              .i = Nanoseconds(1201),
                                                              .w = Nanoseconds(703),
                                                              .b = Nanoseconds(1907)});
        for (std::size_t s = 0; s < stages; ++s)
          costs.stages[s].f += Nanoseconds(static_cast<std::int64_t>(17 * s));
        costs.activation_bytes.assign(stages - 1, Bytes(bytes));
        costs.gradient_bytes.assign(stages - 1, Bytes(bytes));
        add_ports(costs, 4, sharing, 7e9);
        for (const char* preset : {"ideal", "torch", "nccl-one-stream"}) {
          expect_equal(lower(order, comm_policy_preset(preset)), costs,
                       std::string(schedule.name) + " " + preset, seen);
          if (HasFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(seen.walked, 300);
  EXPECT_GT(seen.chosen, 100);
}

TEST(Queues, EveryScheduleUnderEveryPreset) {
  Seen seen;
  for (const planner::Schedule& schedule : planner::schedules()) {
    const std::optional<Order> made = order_of(schedule);
    if (!made) continue;
    const Order& order = *made;
    CostTable costs = CostTable::uniform(order.stages(),
                                         {.f = Nanoseconds(100),
                                          .i = Nanoseconds(120),
                                          .w = Nanoseconds(70),
                                          .b = Nanoseconds(190),
                                          .opt = Nanoseconds(40),
                                          .reduce = Nanoseconds(300),
                                          .unshard = Nanoseconds(60)},
                                         Nanoseconds(13));
    for (std::size_t s = 0; s < costs.stages.size(); s += 3) costs.stages[s].f += Nanoseconds(7);
    const bool updates = !schedule.traits.asynchronous;
    for (const CommPolicyPreset& preset : comm_policy_presets()) {
      const std::string what = std::string(schedule.name) + " " + std::string(preset.name);
      expect_equal(lower(order, preset.policy), costs, what, seen);
      if (!updates) continue;
      const LowerOptions options{.clips = true, .optimizer = true, .sharded = true};
      expect_equal(lower(order, preset.policy, options), costs, what + ", updates", seen);
      expect_equal(lower(planner::replicate(order, 2), preset.policy, options), costs,
                   what + ", replicas", seen);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(seen.walked, 500);
}

}  // namespace queues_test
}  // namespace pipewright::tests
