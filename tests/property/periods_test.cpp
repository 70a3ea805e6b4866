// The steady state, skipped: every figure of a step found that way is the one of the step simulated
// whole, on random schedules, sizes, costs and policies. And the rule that it rests on: which
// orders repeat themselves.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "core/base/error.hpp"
#include "planner/plans/long_step.hpp"
#include "planner/schedules/order_period.hpp"
#include "sim/engine.hpp"
#include "sim/steady/listing_period.hpp"
#include "sim/steady/order_middle.hpp"
#include "tests/reference/random_order.hpp"

namespace pipewright::tests {
namespace periods_test {

using planner::LongStepAnswer;
using planner::Schedule;
using planner::ScheduleRequest;
using reference::Dice;

/// Every field, the doubles by their bits.
std::string shown(const Figures& figures) {
  char ratios[64];
  std::snprintf(ratios, sizeof ratios, "%a %a", figures.bubble_ratio, figures.span_bubble_ratio);
  std::string text = std::to_string(figures.makespan_ns) + " " + ratios;
  for (const RankFigures& rank : figures.ranks) {
    for (const std::int64_t value :
         {rank.busy_ns, rank.span_ns, rank.first_start_ns, rank.last_end_ns,
          std::int64_t{rank.peak_activations}, rank.peak_bytes})
      text += (value == rank.busy_ns ? "\n  " : " ") + std::to_string(value);
  }
  return text;
}

struct LongCase {
  const Schedule* schedule = nullptr;
  ScheduleRequest request;
  CostTable costs;
  CommPolicy policy;
  LowerOptions options;

  std::string text() const {
    std::string words = std::string(schedule->name) + " p=" + std::to_string(request.ranks) +
                        " m=" + std::to_string(request.micro_batches) +
                        " v=" + std::to_string(request.chunks);
    for (const auto& [key, value] : request.parameters) words += " " + key + "=" + value;
    return words + ", " + policy_text();
  }
  std::string policy_text() const {
    return std::string(to_string(policy.issue)) + " " + std::string(to_string(policy.channel)) +
           " " + std::string(to_string(policy.post)) + " " +
           std::string(to_string(policy.run_order)) + " " + to_string(policy.send_f) + " " +
           to_string(policy.send_b) + " " + std::string(to_string(policy.connect)) + " " +
           std::string(to_string(policy.buffers)) + " in flight " +
           std::to_string(policy.in_flight);
  }
};

Protocol any_protocol(Dice& dice) {
  switch (dice.below(5)) {
    case 0:
      return {};
    case 1:
      return {Protocol::Kind::EagerMessages, dice.between(1, 3)};
    case 2:
      return {Protocol::Kind::EagerBytes, dice.between(1, 300)};
    default:
      return {Protocol::Kind::EagerUnlimited, 0};
  }
}

CommPolicy any_policy(Dice& dice) {
  if (dice.chance(30)) return comm_policy_preset("ideal");
  if (dice.chance(40)) {
    const auto& presets = comm_policy_presets();
    return presets[static_cast<std::size_t>(dice.below(static_cast<int>(presets.size())))].policy;
  }
  CommPolicy policy;
  policy.issue = static_cast<Issue>(dice.below(3));
  policy.channel = static_cast<Channel>(dice.below(5));
  policy.post = static_cast<Post>(dice.below(3));
  policy.run_order = static_cast<RunOrder>(dice.below(2));
  policy.connect = static_cast<Connect>(dice.below(2));
  policy.buffers = dice.chance(20) ? Buffers::Registered : Buffers::Plain;
  policy.batches = static_cast<Batches>(dice.below(3));
  policy.send_f = any_protocol(dice);
  policy.send_b = any_protocol(dice);
  if (dice.chance(30)) policy.in_flight = dice.between(1, 9);
  return policy;
}

/// Small numbers, so that much happens at once; large ones; now and then a stage unlike the others.
CostTable any_costs(Dice& dice, int stages, int ranks) {
  const int scale = dice.chance(30) ? 1'000'003 : 1;
  const auto time = [&](int least) {
    return Nanoseconds(std::int64_t{dice.between(least, 6)} * scale);
  };
  const bool equal = dice.chance(60);
  CostTable costs = CostTable::uniform(stages,
                                       {.f = time(0),
                                        .i = time(1),
                                        .w = time(0),
                                        .b = time(1),
                                        .opt = {},
                                        .reduce = {},
                                        .unshard = {}},
                                       dice.chance(70) ? time(0) : Nanoseconds(0));
  for (StageCosts& stage : costs.stages) {
    if (!equal) stage.f = time(0), stage.i = time(1), stage.w = time(0), stage.b = time(1);
    if (dice.chance(10)) stage.b = stage.i + stage.w;
  }
  if (dice.chance(20))
    for (StageCosts& stage : costs.stages) stage.opt = time(1);
  if (dice.chance(30)) {
    for (int s = 0; s + 1 < stages; ++s) {
      costs.activation_bytes.emplace_back(dice.between(1, 200));
      costs.gradient_bytes.emplace_back(dice.between(1, 200));
    }
    costs.every_route.bytes_per_second = 1e9 / dice.between(1, 40);
  }
  if (dice.chance(20)) {
    costs.route_of_edge.resize(static_cast<std::size_t>(ranks * ranks), costs.every_route);
    for (RouteCosts& route : costs.route_of_edge) route.latency = time(0);
  }
  if (dice.chance(40)) {
    for (int s = 0; s < stages; ++s) {
      const int kept = dice.between(1, 50), early = dice.between(0, kept);
      StageMemory memory{.f = Bytes(kept),
                         .i = Bytes(-early),
                         .w = Bytes(early - kept),
                         .constant = Bytes(dice.between(0, 99)),
                         .in_f = Bytes(dice.between(0, 90)),
                         .in_i = {},
                         .in_w = {},
                         .in_b = Bytes(dice.between(0, 90)),
                         .version = {},
                         .whole_gradients = {},
                         .whole_weights = {},
                         .copied_gradients = Bytes(dice.between(0, 99)),
                         .copied_weights = {}};
      if (dice.chance(3)) memory.w += Bytes(1);  // grows with every micro-batch
      costs.memory.push_back(memory);
    }
  }
  if (dice.chance(10)) costs.overlapped_pair = time(1);
  return costs;
}

/// Of every schedule whose order is known to repeat itself; some of those with few sizes twice.
constexpr std::string_view kNames[] = {"naive",       "gpipe",          "1f1b",
                                       "eager-1f1b",  "looped-bfs",     "interleaved",
                                       "interleaved", "interleaved-zb", "grouped-interleaved",
                                       "zb-h1",       "zb-h2",          "1f1b-v",
                                       "v-half",      "v-min",          "zbv",
                                       "dualpipev",   "dualpipe",       "chimera",
                                       "hanayo",      "hanayo",         "looped-bfs",
                                       "paddle-vpp",  "paddle-zbh1"};

int any_chunks(Dice& dice, const Schedule& schedule) {
  if (schedule.name == "hanayo") return 2 * dice.between(1, 2);
  if (schedule.name.ends_with("interleaved") || schedule.name == "interleaved-zb" ||
      schedule.name == "looped-bfs" || schedule.name == "paddle-vpp")
    return dice.between(1, 3);
  return schedule.default_chunks;
}

LongCase random_case(std::uint64_t seed) {
  Dice dice(seed);
  LongCase c;
  c.schedule = &planner::find_schedule(kNames[dice.below(static_cast<int>(std::size(kNames)))]);
  const std::string_view name = c.schedule->name;
  const int most = dice.chance(20) ? 8 : 4;
  const bool both_ways = c.schedule->layout == planner::Layout::Bidirectional;
  c.request.ranks = both_ways ? 2 * dice.between(1, most / 2) : dice.between(1, most);
  c.request.chunks = any_chunks(dice, *c.schedule);
  const bool grouped = name == "grouped-interleaved";
  int round = both_ways ? 2 : 1;
  if (name == "interleaved" || grouped) {
    const int least = grouped ? (c.request.ranks + 1) / 2 : c.request.ranks;
    round = dice.between(least, grouped ? c.request.ranks : c.request.ranks + 3);
    if (dice.chance(50)) c.request.parameters["group"] = std::to_string(round);
  }
  if (name == "hanayo" && dice.chance(50)) c.request.parameters["backward"] = "fused";
  if ((name == "paddle-vpp" || name == "1f1b") && dice.chance(30))
    c.request.parameters["jobs"] = dice.chance(50) ? "split" : "fused";
  if (name == "chimera" || name == "paddle-vpp" || name == "interleaved-zb" ||
      (name == "interleaved" && c.request.parameters.empty()))
    round = c.request.ranks;
  const int least = 8 * (c.request.ranks + round);
  c.request.micro_batches = dice.between(least, 2 * least + 40) / round * round;
  if (c.schedule->refusal(c.request)) c.request.micro_batches = least;
  c.policy = any_policy(dice);
  c.costs = any_costs(dice, c.request.ranks * c.request.chunks, c.request.ranks);
  c.options.optimizer = c.costs.stages.front().opt.value > 0 || dice.chance(10);
  return c;
}

Figures long_way(const LongCase& c) {
  const Program program = lower(c.schedule->make(c.request), c.policy, c.options);
  const sim::Result result = sim::simulate(program, c.costs);
  EXPECT_TRUE(result.finished);
  return result.finished ? figures_of(program, result.timeline, c.costs) : Figures{};
}

/// PIPEWRIGHT_PERIODS_SEEDS=from:to asks for others than the 2,000 of every run.
std::pair<std::uint64_t, std::uint64_t> seeds() {
  const char* wanted = std::getenv("PIPEWRIGHT_PERIODS_SEEDS");
  if (wanted == nullptr) return {0, 2000};
  const std::string text = wanted;
  return {std::stoull(text), std::stoull(text.substr(text.find(':') + 1))};
}

TEST(Periods, EveryFigureIsThatOfTheLongWay) {
  const auto [from, to] = seeds();
  int skipped = 0, cases = 0;
  std::map<std::string_view, int> by_schedule;
  std::map<std::string, int> refused;
  for (std::uint64_t seed = from; seed < to && !HasFailure(); ++seed) {
    const LongCase c = random_case(seed);
    if (c.schedule->refusal(c.request)) continue;
    ++cases;
    const LongStepAnswer answer =
        planner::long_step(*c.schedule, c.request, c.costs, c.policy, c.options);
    if (!answer.step) {
      ++refused[answer.why_not];
      continue;
    }
    ++skipped;
    ++by_schedule[c.schedule->name];
    EXPECT_EQ(shown(answer.step->figures), shown(long_way(c)))
        << "seed " << seed << ": " << c.text();
  }
  for (const auto& [why, count] : refused)
    if (count * 50 > cases) std::printf("  %5d %s\n", count, why.c_str());
  std::printf("%d of %d cases were skipped through\n", skipped, cases);
  EXPECT_GT(2 * skipped, cases);
  EXPECT_GE(by_schedule.size(), 10U);
}

/// Whether the order of so many periods more has the same middle, longer by so many. `request` is
/// already one period further than the order whose middle it is.
bool goes_on(const Schedule& schedule, ScheduleRequest request, const sim::OrderMiddle& middle,
             int periods) {
  request.micro_batches += (periods - 1) * middle.micro_batches;
  const Order far = schedule.make(request);
  request.micro_batches += middle.micro_batches;
  const auto there = sim::middle_of(far, schedule.make(request));
  if (!there || there->phases.size() != middle.phases.size()) return false;
  for (std::size_t r = 0; r < far.ranks.size(); ++r) {
    std::size_t put_in = 0;
    for (std::size_t q = 0; q < middle.phases.size(); ++q) {
      const sim::Middle &a = middle.phases[q][r], &b = there->phases[q][r];
      const std::size_t more = static_cast<std::size_t>(periods) * a.period;
      if (b.period != a.period || b.begin != a.begin + put_in || b.end != a.end + put_in + more)
        return false;
      put_in += more;
    }
  }
  return true;
}

/// What order_period() says of every number of micro-batches, tried.
TEST(Periods, OrdersRepeatThemselves) {
  int compared = 0;
  for (const Schedule& schedule : planner::schedules()) {
    for (int p = 1; p <= 10; ++p) {
      for (int v = 1; v <= 4; ++v) {
        for (const char* group : {"", "3", "4", "7"}) {
          ScheduleRequest request{.ranks = p, .micro_batches = p, .chunks = v, .parameters = {}};
          if (*group != 0) request.parameters["group"] = group;
          const int period = planner::order_period(schedule, request);
          if (period == 0) continue;
          for (int m = 4 * (p + period); m < 4 * (p + period) + 2 * period + 3; ++m) {
            request.micro_batches = m;
            if (planner::order_period(schedule, request) != period ||
                planner::refusal_of(schedule, request))
              continue;
            const Order order = schedule.make(request);
            request.micro_batches += period;
            ASSERT_FALSE(planner::refusal_of(schedule, request));
            const auto middle = sim::middle_of(order, schedule.make(request));
            ASSERT_TRUE(middle) << schedule.name << " p=" << p << " m=" << m << " v=" << v << group;
            EXPECT_TRUE(sim::listing_period(order, *middle));
            ++compared;
            if (m > 4 * (p + period)) continue;
            EXPECT_TRUE(goes_on(schedule, request, *middle, 20))
                << schedule.name << " p=" << p << " m=" << m << " v=" << v << group;
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 500);
}

TEST(Periods, WhatDoesNotRepeatIsSaid) {
  const CostTable costs = CostTable::uniform(2, {.f = Nanoseconds(1),
                                                 .i = Nanoseconds(1),
                                                 .w = Nanoseconds(1),
                                                 .b = Nanoseconds(2),
                                                 .opt = {},
                                                 .reduce = {},
                                                 .unshard = {}});
  const auto why = [&](std::string_view name, int m, CostTable table) {
    return planner::long_step(planner::find_schedule(name),
                              {.ranks = 2, .micro_batches = m, .chunks = 1, .parameters = {}},
                              table, comm_policy_preset("ideal"), {})
        .why_not;
  };
  EXPECT_EQ(why("1f1b", 1000, costs), "");
  EXPECT_EQ(why("pipedream", 1000, costs), "the order of pipedream is not known to repeat itself");
  EXPECT_EQ(why("1f1b", 20, costs), "a short step would have more than half of the micro-batches");
}

TEST(Periods, ABillionMicroBatches) {
  const CostTable costs = CostTable::uniform(64, {.f = Nanoseconds(10),
                                                  .i = Nanoseconds(15),
                                                  .w = Nanoseconds(5),
                                                  .b = Nanoseconds(20),
                                                  .opt = {},
                                                  .reduce = {},
                                                  .unshard = {}});
  const auto answer = planner::long_step(
      planner::find_schedule("1f1b"),
      {.ranks = 64, .micro_batches = 1'000'000'000, .chunks = 1, .parameters = {}}, costs,
      comm_policy_preset("ideal"), {});
  ASSERT_TRUE(answer.step) << answer.why_not;
  // (p - 1 + m)(F + B), the closed form of 1F1B.
  EXPECT_EQ(answer.step->figures.makespan_ns, (63 + std::int64_t{1'000'000'000}) * 30);
  EXPECT_EQ(answer.step->figures.ranks[5].busy_ns, std::int64_t{1'000'000'000} * 30);
  EXPECT_EQ(answer.step->figures.ranks[5].peak_activations, 59);
}

TEST(Periods, TimesBeyond64BitsAreAnError) {
  const CostTable costs = CostTable::uniform(1, {.f = Nanoseconds(20'000'000'000),
                                                 .i = {},
                                                 .w = {},
                                                 .b = Nanoseconds(1),
                                                 .opt = {},
                                                 .reduce = {},
                                                 .unshard = {}});
  EXPECT_THROW(planner::long_step(
                   planner::find_schedule("1f1b"),
                   {.ranks = 1, .micro_batches = 1'000'000'000, .chunks = 1, .parameters = {}},
                   costs, comm_policy_preset("ideal"), {}),
               InputError);
}

}  // namespace periods_test
}  // namespace pipewright::tests
