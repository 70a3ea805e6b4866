// Synthesis where single actions have times of their own, on random problems: what it says of its
// order is what the engine says; no order that there is, whatever turns its stages take, is below
// the bound; no named schedule is better, nor what the search finds that does not know the times.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include "core/costs/action_times.hpp"
#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "core/timeline/timeline.hpp"
#include "planner/schedules/registry.hpp"
#include "planner/synthesis/synthesis.hpp"
#include "sim/engine.hpp"
#include "tests/reference/random_order.hpp"

namespace pipewright::planner {
namespace own_times_test {

using reference::Dice;

constexpr std::int64_t kMillisecond = 1'000'000;

/// Of one replica, by the rows of the table: written here anew.
CostTable of_replica(const SynthesisRequest& request, int replica) {
  CostTable costs = request.costs;
  std::vector<ActionTime> rows;
  for (const ActionTime& row : request.costs.actions->rows()) {
    if (row.replica == replica)
      rows.push_back({.replica = 0, .rank = row.rank, .action = row.action, .time = row.time});
  }
  costs.actions = std::make_shared<ActionTimes>(
      rows, ReplicaShape{1, request.placement.ranks(), request.micro_batches});
  return costs;
}

/// Of the slowest replica; nullopt where the order never ends or holds too much.
std::optional<std::int64_t> engine(const Order& order, const SynthesisRequest& request) {
  const Program program =
      lower(order, comm_policy_preset("ideal"), {.optimizer = request.with_updates});
  std::int64_t value = 0;
  for (int d = 0; d < request.costs.actions->shape().replicas; ++d) {
    const CostTable costs = of_replica(request, d);
    const sim::Result result = sim::simulate(program, costs);
    if (!result.finished) return std::nullopt;
    const Figures figures = figures_of(program, result.timeline, costs);
    const bool span = request.objective == Objective::Span;
    if (!span) value = std::max(value, figures.makespan_ns);
    for (std::size_t r = 0; r < figures.ranks.size(); ++r) {
      if (span) value = std::max(value, figures.ranks[r].span_ns);
      const std::int64_t limit =
          request.memory_limit.empty() ? 0 : request.memory_limit.front().value;
      if (limit > 0 && figures.ranks[r].peak_activations > limit) return std::nullopt;
    }
  }
  return value;
}

/// Times of single actions: a slow rank, unequal micro-batches, or anything.
void add_times(SynthesisRequest& request, int replicas, Dice& dice) {
  const int ranks = request.placement.ranks(), what = dice.below(3);
  std::vector<ActionTime> rows;
  for (int d = 0; d < replicas; ++d) {
    const int slow = dice.below(ranks);
    std::vector<int> length;
    for (int k = 0; k < request.micro_batches; ++k) length.push_back(dice.between(1, 4));
    for (int s = 0; s < request.placement.stages(); ++s) {
      const RankId rank = request.placement.rank_of(StageId(s), MicroBatchId(0));
      for (int k = 0; k < request.micro_batches; ++k) {
        std::vector<ActionKind> kinds = {ActionKind::F};
        if (request.split_backward) {
          kinds.insert(kinds.end(), {ActionKind::I, ActionKind::W});
        } else {
          kinds.push_back(ActionKind::B);
        }
        for (const ActionKind kind : kinds) {
          Nanoseconds time = request.costs.stage_time(kind, StageId(s));
          if (what == 0 && rank.value == slow) time = time * 2;
          if (what == 1) time = time * length[static_cast<std::size_t>(k)];
          if (what == 2) time = Nanoseconds(dice.between(0, 20));
          if (what == 2 && dice.chance(30)) continue;
          const Action action{.kind = kind, .stage = StageId(s), .micro_batch = MicroBatchId(k)};
          rows.push_back({.replica = d, .rank = rank, .action = {action, {}}, .time = time});
        }
      }
    }
    if (request.with_updates) {
      const Action update{.kind = ActionKind::Opt, .stage = StageId(0)};
      rows.push_back(
          {.replica = d, .rank = RankId(slow), .action = {update, {}}, .time = Nanoseconds(9)});
    }
  }
  request.costs.actions =
      std::make_shared<ActionTimes>(rows, ReplicaShape{replicas, ranks, request.micro_batches});
}

SynthesisRequest random_request(Placement placement, int micro_batches, Dice& dice) {
  SynthesisRequest request;
  request.placement = std::move(placement);
  request.micro_batches = micro_batches;
  request.split_backward = dice.chance(50);
  request.with_updates = dice.chance(30);
  request.objective = dice.chance(70) ? Objective::Makespan : Objective::Span;
  if (request.objective == Objective::Span) request.with_updates = false;
  for (int s = 0; s < request.placement.stages(); ++s) {
    StageCosts each;
    each.f = Nanoseconds(dice.between(1, 9));
    each.i = Nanoseconds(dice.between(1, 9));
    each.w = Nanoseconds(dice.between(1, 9));
    each.b = each.i + each.w;
    each.opt = Nanoseconds(request.with_updates ? 2 : 0);
    request.costs.stages.push_back(each);
  }
  request.costs.every_route.latency = Nanoseconds(dice.chance(50) ? 0 : dice.between(1, 5));
  if (dice.chance(40)) request.memory_limit = {Bytes(dice.between(2, 8))};
  request.seed = static_cast<std::uint64_t>(dice.below(1000));
  request.steps = 20'000;
  add_times(request, dice.chance(70) ? 1 : 2, dice);
  if (request.split_backward) request.only_split = true;
  return request;
}

SynthesisRequest random_request(Dice& dice) {
  const int p = dice.between(1, 4);
  Placement placement =
      dice.chance(30) ? Placement::v_shape(p) : Placement::loop(p, dice.between(1, 2));
  return random_request(std::move(placement), dice.between(1, 7), dice);
}

TEST(OwnTimes, TheOrderTakesWhatTheSearchSays) {
  Dice dice(1);
  int orders = 0;
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(trial);
    const SynthesisRequest request = random_request(dice);
    const SynthesisResult result = synthesise(request);
    if (!result.order) continue;
    ++orders;
    ASSERT_EQ(problems_of(*result.order), std::vector<std::string>{});
    EXPECT_EQ(engine(*result.order, request), result.value_ns) << write_order_csv(*result.order);
    EXPECT_LE(result.lower_bound_ns, result.value_ns);
    EXPECT_EQ(result.proven, result.lower_bound_ns == result.value_ns);
    EXPECT_EQ(result.lower_bound_ns, synthesis_bound(request));
  }
  EXPECT_GT(orders, 150);
}

TEST(OwnTimes, TheSameRequestGivesTheSameOrder) {
  Dice dice(2);
  for (int trial = 0; trial < 20; ++trial) {
    const SynthesisRequest request = random_request(dice);
    const SynthesisResult once = synthesise(request), again = synthesise(request);
    ASSERT_EQ(once.order.has_value(), again.order.has_value());
    if (!once.order) continue;
    EXPECT_EQ(write_order_csv(*once.order), write_order_csv(*again.order));
  }
}

/// Such an order of F, I and W takes times that the rows do not give.
bool fuses(const Order& order) {
  for (const auto& cells : order.ranks) {
    for (const Cell& cell : cells) {
      if (cell.action.kind == ActionKind::B) return true;
    }
  }
  return false;
}

TEST(OwnTimes, NeverWorseThanANamedScheduleOrASearchThatDoesNotKnowThem) {
  Dice dice(3);
  int named = 0, better = 0, searched = 0;
  for (int trial = 0; trial < 150; ++trial) {
    SCOPED_TRACE(trial);
    SynthesisRequest request = random_request(dice);
    request.memory_limit.clear();
    const SynthesisResult result = synthesise(request);
    ASSERT_TRUE(result.order);
    SynthesisRequest unknowing = request;
    unknowing.costs.actions = nullptr;
    const auto without = engine(*synthesise(unknowing).order, request);
    ASSERT_TRUE(without);
    EXPECT_LE(result.value_ns, *without);
    ++searched;
    if (result.value_ns < *without) ++better;
    const ScheduleRequest sizes{.ranks = request.placement.ranks(),
                                .micro_batches = request.micro_batches,
                                .chunks = request.placement.stages() / request.placement.ranks(),
                                .parameters = {},
                                .costs = request.costs,
                                .memory_limit = Bytes(0)};
    for (const Schedule& schedule : schedules()) {
      if (schedule.traits.searched || schedule.traits.asynchronous || schedule.traits.overlaps ||
          schedule.traits.splits_backward != request.split_backward || refusal_of(schedule, sizes))
        continue;
      const Order order = schedule.make(sizes);
      if (order.placement.looks_at_micro_batch() ||
          !same_ranks(order.placement, request.placement) ||
          (request.split_backward && fuses(order)))
        continue;
      const auto value = engine(order, request);
      ASSERT_TRUE(value);
      EXPECT_LE(result.value_ns, *value) << schedule.name;
      ++named;
    }
  }
  EXPECT_GT(named, 200);
  EXPECT_GT(better, searched / 3);  // knowing them is of use
}

/// Every list of a rank that has each I (or B) after its F and each W after its I, and holds no
/// more than the limit.
std::vector<std::vector<Cell>> lists_of(const SynthesisRequest& request, int rank) {
  const auto m = static_cast<std::size_t>(request.micro_batches);
  std::vector<StageId> stages;
  for (const StageId s : request.placement.stages_of(RankId(rank))) stages.push_back(s);
  const std::vector<ActionKind> kinds =
      request.split_backward ? std::vector{ActionKind::F, ActionKind::I, ActionKind::W}
                             : std::vector{ActionKind::F, ActionKind::B};
  const std::int64_t limit = request.memory_limit.empty() ? 0 : request.memory_limit.front().value;
  std::vector<std::size_t> done(stages.size() * m, 0);
  std::vector<Cell> list;
  std::vector<std::vector<Cell>> all;
  const std::function<void()> extend = [&] {
    if (list.size() == done.size() * kinds.size()) return all.push_back(list);
    const auto held = std::count_if(done.begin(), done.end(),
                                    [&](std::size_t n) { return n > 0 && n < kinds.size(); });
    for (std::size_t c = 0; c < done.size(); ++c) {
      if (done[c] == kinds.size() || (done[c] == 0 && limit > 0 && held == limit)) continue;
      const Action action{.kind = kinds[done[c]++],
                          .stage = stages[c / m],
                          .micro_batch = MicroBatchId(static_cast<int>(c % m))};
      list.push_back({action, {}});
      extend();
      list.pop_back();
      --done[c];
    }
  };
  extend();
  return all;
}

/// Of all orders there are; nullopt where none keeps to the limit.
std::optional<std::int64_t> best_of_all(const SynthesisRequest& request) {
  Order order;
  order.placement = request.placement;
  order.micro_batches = request.micro_batches;
  order.ranks.resize(static_cast<std::size_t>(request.placement.ranks()));
  std::vector<std::vector<std::vector<Cell>>> lists;
  for (int r = 0; r < request.placement.ranks(); ++r) lists.push_back(lists_of(request, r));
  std::optional<std::int64_t> best;
  const std::function<void(std::size_t)> choose = [&](std::size_t rank) {
    if (rank == lists.size()) {
      const auto value = engine(order, request);
      if (value && (!best || *value < *best)) best = value;
      return;
    }
    for (const auto& list : lists[rank]) {
      order.ranks[rank] = list;
      choose(rank + 1);
    }
  };
  choose(0);
  return best;
}

struct Exhausted {
  int compared = 0, found = 0, bound_met = 0;
};

void compare_with_all(const Placement& placement, int micro_batches, bool split, int trials,
                      Dice& dice, Exhausted& sum) {
  for (int trial = 0; trial < trials; ++trial) {
    SCOPED_TRACE(trial);
    SynthesisRequest request = random_request(placement, micro_batches, dice);
    if (request.split_backward != split) continue;
    const auto best = best_of_all(request);
    const SynthesisResult result = synthesise(request);
    ASSERT_EQ(best.has_value(), result.order.has_value());
    if (!best) continue;
    ASSERT_LE(result.lower_bound_ns, *best) << write_order_csv(*result.order);
    ASSERT_GE(result.value_ns, *best);
    ++sum.compared;
    if (result.value_ns == *best) ++sum.found;
    if (result.lower_bound_ns == *best) ++sum.bound_met;
  }
}

TEST(OwnTimes, OfAllOrdersOfTinyProblemsNoneIsBelowTheBoundAndTheBestIsMostlyFound) {
  Dice dice(4);
  Exhausted sum;
  compare_with_all(Placement::loop(2, 1), 2, true, 60, dice, sum);
  compare_with_all(Placement::loop(3, 1), 2, false, 60, dice, sum);
  compare_with_all(Placement::loop(2, 1), 3, false, 12, dice, sum);
  compare_with_all(Placement::loop(1, 2), 2, true, 20, dice, sum);
  EXPECT_GT(sum.compared, 60);
  EXPECT_GT(sum.found * 10, sum.compared * 9) << sum.found << " of " << sum.compared;
  EXPECT_GT(sum.bound_met * 2, sum.compared) << sum.bound_met << " of " << sum.compared;
  RecordProperty("compared", sum.compared);
  RecordProperty("found", sum.found);
  RecordProperty("bound_met", sum.bound_met);
}

/// Three micro-batches of which the first is long, on two ranks. With the long one first rank 1
/// waits 40 for it, works off all 180 and rank 0 ends with the 60 of its backwards of which one
/// hides behind rank 1: 280. With a short one first it is 270, the least of all orders.
TEST(OwnTimes, MicroBatchesAreOrderedByWhatTheyTake) {
  SynthesisRequest request;
  request.placement = Placement::loop(2, 1);
  request.micro_batches = 3;
  request.split_backward = false;
  request.costs = CostTable::uniform(
      2, {.f = Nanoseconds(10), .i = Nanoseconds(10), .w = Nanoseconds(10), .b = Nanoseconds(20)});
  std::vector<ActionTime> rows;
  for (int r = 0; r < 2; ++r) {
    for (const ActionKind kind : {ActionKind::F, ActionKind::B}) {
      const Action action{.kind = kind, .stage = StageId(r), .micro_batch = MicroBatchId(0)};
      rows.push_back({.replica = 0,
                      .rank = RankId(r),
                      .action = {action, {}},
                      .time = Nanoseconds(kind == ActionKind::F ? 40 : 80)});
    }
  }
  request.costs.actions = std::make_shared<ActionTimes>(rows, ReplicaShape{1, 2, 3});
  request.steps = 50'000;
  const SynthesisResult result = synthesise(request);
  EXPECT_EQ(result.best_named_ns, 280);
  EXPECT_EQ(result.value_ns, 270);
  EXPECT_EQ(best_of_all(request), 270);
  EXPECT_NE(result.order->ranks[0].front().action.micro_batch, MicroBatchId(0));
}

}  // namespace own_times_test
}  // namespace pipewright::planner
