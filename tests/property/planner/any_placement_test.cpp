// The schedule auto on random problems where it chooses the placement: never worse than a named
// synchronous schedule at any number of stages a rank, under the same limit and with the same
// costs of each rank, and how often it is strictly better. PIPEWRIGHT_SYNTHESIS_PROBLEMS=500 tries
// as many problems; 40 by default.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <optional>

#include "core/base/error.hpp"
#include "core/costs/cost_text.hpp"
#include "core/order/comm_policy.hpp"
#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "core/timeline/timeline.hpp"
#include "planner/memory/weight_copies.hpp"
#include "planner/synthesis/auto_schedule.hpp"
#include "sim/engine.hpp"
#include "tests/reference/random_order.hpp"

namespace pipewright::planner {
namespace any_placement_test {

using reference::Dice;

constexpr int kMostChunks = 8;

int problems() {
  const char* wanted = std::getenv("PIPEWRIGHT_SYNTHESIS_PROBLEMS");
  return wanted != nullptr ? std::atoi(wanted) : 40;
}

/// Costs of ranks: alike or not, of a few ns or of ms, with or without a latency, an overlapped
/// pair, a cheap fused backward, memory and a limit.
ScheduleRequest random_problem(Dice& dice) {
  ScheduleRequest request;
  request.ranks = dice.between(1, 6);
  request.micro_batches = dice.chance(20) ? dice.between(1, request.ranks) : dice.between(1, 20);
  request.parameters = {{"placement", "any"},
                        {"objective", dice.chance(85) ? "makespan" : "span"},
                        {"seed", std::to_string(dice.between(1, 9))}};
  const std::int64_t unit = dice.chance(50) ? 1 : 1'000'003;
  const bool alike = dice.chance(40), cheap = dice.chance(15);
  StageCosts each;
  for (int r = 0; r < request.ranks; ++r) {
    if (r == 0 || !alike) {
      each.f = Nanoseconds(dice.between(1, 30) * unit);
      each.i = Nanoseconds(dice.between(1, 30) * unit);
      each.w = Nanoseconds(dice.between(0, 30) * unit);
      each.b = each.i + each.w;
      if (cheap) each.b = Nanoseconds(each.b.value * dice.between(60, 100) / 100);
    }
    request.costs.stages.push_back(each);
  }
  if (dice.chance(60)) request.costs.every_route.latency = Nanoseconds(dice.between(1, 6) * unit);
  if (dice.chance(15)) {
    request.costs.overlapped_pair =
        Nanoseconds((each.f + each.b).value * dice.between(60, 100) / 100);
  }
  if (dice.chance(30)) return request;
  const std::int64_t byte = dice.chance(50) ? 1 : 1'000'003;
  const bool constant = dice.chance(50), same = dice.chance(60), grows = dice.chance(10);
  StageMemory memory;
  for (int r = 0; r < request.ranks; ++r) {
    if (r == 0 || !same) {
      const int f = dice.between(8, 40), i = grows ? dice.between(0, 8) : -dice.below(f + 1);
      memory = {.f = Bytes(f * byte), .i = Bytes(i * byte), .w = Bytes(-(f + i) * byte)};
      if (constant) memory.constant = Bytes(dice.between(1, 90) * byte);
    }
    request.costs.memory.push_back(memory);
  }
  if (dice.chance(90)) {
    request.memory_limit = Bytes(dice.between(20, 50 * request.ranks) * byte) + memory.constant;
  }
  return request;
}

struct Outcome {
  std::int64_t value = 0;
  bool fits = true;
};

/// Under preset ideal, with the ranks' costs cut into the order's stages; nullopt where it never
/// ends.
std::optional<Outcome> outcome_of(const ScheduleRequest& by_rank, const Order& order) {
  const CostTable costs = resampled(by_rank.costs, order.placement);
  const Program program = lower(order, comm_policy_preset("ideal"));
  const sim::Result result = sim::simulate(program, costs);
  if (!result.finished) return std::nullopt;
  const Figures figures = figures_of(program, result.timeline, costs);
  Outcome outcome;
  std::int64_t span = 0;
  for (const RankFigures& rank : figures.ranks) {
    span = std::max(span, rank.span_ns);
    outcome.fits &= by_rank.memory_limit.value == 0 || costs.memory.empty() ||
                    rank.peak_bytes <= by_rank.memory_limit.value;
  }
  outcome.value = by_rank.parameters.at("objective") == "span" ? span : figures.makespan_ns;
  return outcome;
}

/// Weights that an order has twice have to be in its limit twice.
bool counts(const ScheduleRequest& by_rank, const Order& order) {
  if (weight_copies(order) <= 1) return true;
  const auto& memory = by_rank.costs.memory;
  return by_rank.memory_limit.value > 0 && !memory.empty() &&
         std::all_of(memory.begin(), memory.end(),
                     [](const StageMemory& m) { return m.constant.value > 0; });
}

struct Named {
  std::string name;
  int chunks = 0;
  std::int64_t value = 0;
  bool one_copy = true;
};

/// Of all schedules with 1 to 8 stages a rank, planned for the limit and for what their names
/// promise.
std::vector<Named> named_within_limit(const ScheduleRequest& by_rank) {
  std::vector<Named> found;
  for (const Schedule& schedule : schedules()) {
    if (schedule.traits.searched || schedule.traits.asynchronous) continue;
    for (int chunks = 1; chunks <= kMostChunks; ++chunks) {
      for (const Bytes limit : {by_rank.memory_limit, Bytes(0)}) {
        ScheduleRequest request = by_rank;
        request.parameters.clear();
        request.chunks = chunks;
        request.memory_limit = limit;
        request.costs = resampled(by_rank.costs, placement_of(schedule, request));
        if (refusal_of(schedule, request)) continue;
        const Order order = schedule.make(request);
        const auto outcome = outcome_of(by_rank, order);
        if (!outcome || !outcome->fits || !counts(by_rank, order)) continue;
        found.push_back(
            {std::string(schedule.name), chunks, outcome->value, weight_copies(order) <= 1});
      }
    }
  }
  return found;
}

TEST(AnyPlacement, IsNeverWorseThanANamedScheduleAtAnyNumberOfStagesARank) {
  Dice dice(16);
  int tried = 0, compared = 0, better = 0, proved = 0, none = 0, several = 0;
  for (int problem = 0; problem < problems(); ++problem) {
    SCOPED_TRACE(problem);
    const ScheduleRequest by_rank = random_problem(dice);
    SynthesisRequest wanted = synthesis_request(by_rank);
    wanted.steps = 200'000;
    const SynthesisResult result = synthesise_for(by_rank, wanted);
    const std::vector<Named> named = named_within_limit(by_rank);
    ++tried;
    if (!result.order) {
      ++none;
      EXPECT_TRUE(named.empty()) << named.front().name << " " << named.front().chunks;
      continue;
    }
    ASSERT_EQ(problems_of(*result.order), std::vector<std::string>{});
    const auto own = outcome_of(by_rank, *result.order);
    ASSERT_TRUE(own);
    EXPECT_EQ(own->value, result.value_ns) << result.found_by;
    EXPECT_TRUE(own->fits) << result.found_by;
    EXPECT_TRUE(counts(by_rank, *result.order)) << result.found_by;
    EXPECT_LE(result.lower_bound_ns, result.value_ns);
    proved += result.proven;
    several += result.order->stages() > by_rank.ranks;
    for (const Named& each : named) {
      EXPECT_LE(result.value_ns, each.value) << each.name << " with " << each.chunks;
      // Where the bound leaves out some kinds of orders it says so.
      if (result.scope.orders.find("orders") == std::string::npos && each.one_copy) {
        EXPECT_LE(result.lower_bound_ns, each.value) << each.name;
      }
    }
    if (named.empty()) continue;
    ++compared;
    const std::int64_t best =
        std::min_element(named.begin(), named.end(), [](const Named& a, const Named& b) {
          return a.value < b.value;
        })->value;
    better += result.value_ns < best;
  }
  std::cout << tried << " problems: " << none << " without an order within the limit, " << compared
            << " with a named schedule within it; auto strictly better in " << better
            << ", equal in " << compared - better << ", worse in 0 unless said above; proved in "
            << proved << ", several stages a rank in " << several << "\n";
  EXPECT_GT(better, tried / 10);
}

}  // namespace any_placement_test
}  // namespace pipewright::planner
