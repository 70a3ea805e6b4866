// Synthesis on random problems: what it says of its order is what the engine says, no order is
// below its bound, no named schedule is better, and the same request gives the same answer.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <thread>

#include "core/base/error.hpp"
#include "core/order/comm_policy.hpp"
#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "core/timeline/timeline.hpp"
#include "planner/schedules/registry.hpp"
#include "planner/synthesis/synthesis.hpp"
#include "sim/engine.hpp"
#include "tests/reference/random_order.hpp"

namespace pipewright::planner {
namespace synthesis_test {

using reference::Dice;

constexpr std::int64_t kMillisecond = 1'000'000;

std::int64_t value_of(const Figures& figures, Objective objective) {
  if (objective == Objective::Makespan) return figures.makespan_ns;
  std::int64_t span = 0;
  for (const RankFigures& rank : figures.ranks) span = std::max(span, rank.span_ns);
  return span;
}

/// nullopt where the order never ends.
std::optional<Figures> engine(const Order& order, const CostTable& costs) {
  const Program program = lower(order, comm_policy_preset("ideal"));
  const sim::Result result = sim::simulate(program, costs);
  if (!result.finished) return std::nullopt;
  return figures_of(program, result.timeline, costs);
}

Placement random_placement(Dice& dice) {
  const int p = dice.between(1, 4);
  if (dice.chance(40)) return Placement::loop(p, dice.between(1, 3));
  if (dice.chance(50)) return Placement::v_shape(p);
  std::vector<RankId> ranks;
  for (int s = dice.between(p, 2 * p); s > 0; --s) ranks.emplace_back(dice.below(p));
  return Placement::explicit_stages(ranks, p);
}

bool uses_every_rank(const Placement& placement) {
  for (int r = 0; r < placement.ranks(); ++r) {
    if (placement.stages_of(RankId(r)).empty()) return false;
  }
  return true;
}

SynthesisRequest random_request(Dice& dice) {
  SynthesisRequest request;
  // A rank without a stage makes no whole order.
  do request.placement = random_placement(dice);
  while (!uses_every_rank(request.placement));
  request.micro_batches = dice.between(1, 8);
  const bool equal = dice.chance(30);
  StageCosts each;
  for (int s = 0; s < request.placement.stages(); ++s) {
    if (s == 0 || !equal) {
      each.f = Nanoseconds(dice.chance(5) ? 0 : dice.between(1, 12));
      each.i = Nanoseconds(dice.chance(5) ? 0 : dice.between(1, 12));
      each.w = Nanoseconds(dice.chance(5) ? 0 : dice.between(1, 12));
      each.b = each.i + each.w;
    }
    request.costs.stages.push_back(each);
  }
  request.costs.every_route.latency = Nanoseconds(dice.chance(50) ? 0 : dice.between(1, 5));
  if (dice.chance(50)) {
    for (int s = 0; s < request.placement.stages(); ++s) {
      const int f = dice.between(1, 9), i = dice.below(f + 1);
      request.costs.memory.push_back(
          {.f = Bytes(f), .i = Bytes(-i), .w = Bytes(i - f), .constant = Bytes(dice.below(4))});
    }
  }
  if (dice.chance(70)) {
    for (int r = 0; r < request.placement.ranks(); ++r)
      request.memory_limit.emplace_back(dice.chance(10) ? 0 : dice.between(5, 60));
  }
  request.objective = dice.chance(50) ? Objective::Makespan : Objective::Span;
  request.split_backward = dice.chance(80);
  request.seed = static_cast<std::uint64_t>(dice.below(1000));
  request.budget_ns = 2 * kMillisecond;
  return request;
}

/// Takes actions at random, micro-batches in any order, as long as memory allows; nullopt where
/// that leads nowhere.
class RandomWalk {
 public:
  RandomWalk(const SynthesisRequest& request, Dice& dice) : request_(request), dice_(dice) {
    order_.placement = request.placement;
    order_.micro_batches = request.micro_batches;
    order_.ranks.resize(static_cast<std::size_t>(request.placement.ranks()));
    held_.resize(order_.ranks.size());
    for (int r = 0; r < request.placement.ranks(); ++r) {
      for (const StageId s : request.placement.stages_of(RankId(r)))
        held_[static_cast<std::size_t>(r)] += memory(s.value).constant.value;
    }
    for (int s = 0; s < request.placement.stages(); ++s) {
      for (int k = 0; k < request.micro_batches; ++k) {
        add(ActionKind::F, s, k);
        add(request.split_backward ? ActionKind::I : ActionKind::B, s, k);
        if (request.split_backward) add(ActionKind::W, s, k);
      }
    }
  }

  std::optional<Order> walk() {
    while (!left_.empty()) {
      std::vector<std::size_t> possible;
      for (std::size_t k = 0; k < left_.size(); ++k) {
        if (ready(left_[k]) && fits(left_[k])) possible.push_back(k);
      }
      if (possible.empty()) return std::nullopt;
      take(possible[static_cast<std::size_t>(dice_.below(static_cast<int>(possible.size())))]);
    }
    return order_;
  }

 private:
  using Key = std::tuple<ActionKind, int, int>;
  Key key(ActionKind kind, int s, int k) const {
    return {kind == ActionKind::B ? ActionKind::I : kind, s, k};
  }
  void add(ActionKind kind, int s, int k) {
    left_.push_back({.kind = kind, .stage = StageId(s), .micro_batch = MicroBatchId(k)});
  }
  StageMemory memory(int s) const {
    if (request_.costs.memory.empty()) return {Bytes(1), Bytes(0), Bytes(-1), Bytes(0)};
    return request_.costs.memory[static_cast<std::size_t>(s)];
  }
  bool ready(const Action& a) const {
    const int s = a.stage.value, k = a.micro_batch.value;
    if (a.kind == ActionKind::F) return s == 0 || done_.count(key(ActionKind::F, s - 1, k)) > 0;
    if (a.kind == ActionKind::W) return done_.count(key(ActionKind::I, s, k)) > 0;
    return done_.count(key(ActionKind::F, s, k)) > 0 &&
           (s + 1 == request_.placement.stages() || done_.count(key(ActionKind::I, s + 1, k)) > 0);
  }
  std::size_t rank(const Action& a) const {
    return static_cast<std::size_t>(request_.placement.rank_of(a.stage, a.micro_batch).value);
  }
  bool fits(const Action& a) const {
    const auto& limits = request_.memory_limit;
    if (a.kind != ActionKind::F || limits.empty() || limits[rank(a)].value == 0) return true;
    return held_[rank(a)] + memory(a.stage.value).f.value <= limits[rank(a)].value;
  }
  void take(std::size_t index) {
    const Action a = left_[index];
    left_.erase(left_.begin() + static_cast<std::ptrdiff_t>(index));
    const StageMemory m = memory(a.stage.value);
    if (a.kind == ActionKind::F) held_[rank(a)] += m.f.value;
    if (a.kind == ActionKind::I || a.kind == ActionKind::B) held_[rank(a)] += m.i.value;
    if (a.kind == ActionKind::W || a.kind == ActionKind::B) held_[rank(a)] += m.w.value;
    done_.insert(key(a.kind, a.stage.value, a.micro_batch.value));
    order_.ranks[rank(a)].push_back({a, std::nullopt});
  }

  const SynthesisRequest& request_;
  Dice& dice_;
  Order order_;
  std::vector<Action> left_;
  std::set<Key> done_;
  std::vector<std::int64_t> held_;
};

TEST(Synthesis, SaysOfItsOrderWhatTheEngineSays) {
  Dice dice(1);
  int orders = 0, none = 0;
  for (int trial = 0; trial < 400; ++trial) {
    SCOPED_TRACE(trial);
    const SynthesisRequest request = random_request(dice);
    const SynthesisResult result = synthesise(request);
    if (!result.order) {
      ++none;
      continue;
    }
    ++orders;
    ASSERT_EQ(problems_of(*result.order), std::vector<std::string>{});
    const auto figures = engine(*result.order, request.costs);
    ASSERT_TRUE(figures);
    EXPECT_EQ(figures->makespan_ns, result.makespan_ns);
    EXPECT_EQ(value_of(*figures, Objective::Span), result.span_ns);
    EXPECT_EQ(value_of(*figures, request.objective), result.value_ns);
    EXPECT_LE(result.lower_bound_ns, result.value_ns);
    for (std::size_t r = 0; r < request.memory_limit.size(); ++r) {
      const std::int64_t limit = request.memory_limit[r].value;
      const RankFigures& rank = figures->ranks[r];
      const bool bytes = !request.costs.memory.empty();
      const std::int64_t peak = bytes ? rank.peak_bytes : rank.peak_activations;
      EXPECT_TRUE(limit == 0 || peak <= limit) << peak << " of " << limit;
    }
  }
  EXPECT_GT(orders, 200);
  EXPECT_GT(none, 10);
}

TEST(Synthesis, NoLegalOrderIsBelowTheBound) {
  Dice dice(2);
  int compared = 0;
  for (int trial = 0; trial < 300; ++trial) {
    SCOPED_TRACE(trial);
    SynthesisRequest request = random_request(dice);
    request.micro_batches = std::min(request.micro_batches, 4);
    request.budget_ns = 0;
    const SynthesisResult result = synthesise(request);
    if (!result.order) continue;
    for (int walk = 0; walk < 40; ++walk) {
      const auto order = RandomWalk(request, dice).walk();
      if (!order) continue;
      const auto figures = engine(*order, request.costs);
      ASSERT_TRUE(figures);
      ASSERT_GE(value_of(*figures, request.objective), result.lower_bound_ns)
          << write_order_csv(*order);
      ++compared;
    }
  }
  EXPECT_GT(compared, 2000);
}

bool same_places(const Placement& a, const Placement& b) {
  if (a.looks_at_micro_batch() || a.stages() != b.stages()) return false;
  for (int s = 0; s < a.stages(); ++s) {
    if (a.rank_of(StageId(s), MicroBatchId(0)) != b.rank_of(StageId(s), MicroBatchId(0))) {
      return false;
    }
  }
  return true;
}

TEST(Synthesis, IsNeverWorseThanANamedScheduleUnderTheSameMemory) {
  Dice dice(3);
  int compared = 0;
  for (int trial = 0; trial < 300; ++trial) {
    SCOPED_TRACE(trial);
    const SynthesisRequest request = random_request(dice);
    const SynthesisResult result = synthesise(request);
    if (!result.order || request.placement.stages() % request.placement.ranks() != 0) continue;
    ScheduleRequest named{.ranks = request.placement.ranks(),
                          .micro_batches = request.micro_batches,
                          .chunks = request.placement.stages() / request.placement.ranks(),
                          .parameters = {},
                          .costs = request.costs,
                          .memory_limit = Bytes(0)};
    for (const Schedule& schedule : schedules()) {
      if (schedule.traits.searched || schedule.traits.asynchronous ||
          schedule.traits.splits_backward != request.split_backward)
        continue;
      if (refusal_of(schedule, named)) continue;
      const Order order = schedule.make(named);
      if (!same_places(order.placement, request.placement)) continue;
      const auto figures = engine(order, request.costs);
      ASSERT_TRUE(figures);
      bool fits = true;
      for (std::size_t r = 0; r < request.memory_limit.size(); ++r) {
        const std::int64_t limit = request.memory_limit[r].value;
        const RankFigures& rank = figures->ranks[r];
        const bool bytes = !request.costs.memory.empty();
        fits &= limit == 0 || (bytes ? rank.peak_bytes : rank.peak_activations) <= limit;
      }
      if (!fits) continue;
      EXPECT_LE(result.value_ns, value_of(*figures, request.objective)) << schedule.name;
      ++compared;
    }
  }
  EXPECT_GT(compared, 100);
}

TEST(Synthesis, TheSameRequestGivesTheSameOrder) {
  Dice dice(4);
  for (int trial = 0; trial < 30; ++trial) {
    SCOPED_TRACE(trial);
    SynthesisRequest request = random_request(dice);
    const SynthesisResult once = synthesise(request), again = synthesise(request);
    ASSERT_EQ(once.order.has_value(), again.order.has_value());
    if (!once.order) continue;
    EXPECT_EQ(write_order_csv(*once.order), write_order_csv(*again.order));
    EXPECT_EQ(once.evaluated, again.evaluated);
  }
}

/// What a core gets done in the budget depends on who else wants it; what is tried does not.
TEST(Synthesis, ABusyMachineTriesTheSameOrders) {
  SynthesisRequest request;
  request.placement = Placement::loop(8, 2);
  request.micro_batches = 16;
  for (int s = 0; s < 16; ++s)
    request.costs.stages.push_back({.f = Nanoseconds(20 + s % 5),
                                    .i = Nanoseconds(21 + s % 3),
                                    .w = Nanoseconds(19),
                                    .b = Nanoseconds(40 + s % 3)});
  request.budget_ns = 40 * kMillisecond;
  std::vector<SynthesisResult> found(12);
  std::vector<std::thread> others;
  for (SynthesisResult& result : found) others.emplace_back([&] { result = synthesise(request); });
  for (std::thread& other : others) other.join();
  const SynthesisResult alone = synthesise(request);
  for (const SynthesisResult& result : found) {
    EXPECT_EQ(result.evaluated, alone.evaluated);
    EXPECT_EQ(write_order_csv(*result.order), write_order_csv(*alone.order));
  }
}

TEST(Synthesis, ALimitTooLowIsAnAnswerWithTheLeastThatWorks) {
  Dice dice(5);
  int low = 0;
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(trial);
    SynthesisRequest request = random_request(dice);
    request.memory_limit = {Bytes(dice.between(1, 9))};
    request.budget_ns = 0;
    const SynthesisResult result = synthesise(request);
    if (result.order) {
      EXPECT_TRUE(result.least_limit.empty());
      continue;
    }
    ++low;
    ASSERT_EQ(result.least_limit.size(), static_cast<std::size_t>(request.placement.ranks()));
    request.memory_limit = result.least_limit;
    EXPECT_TRUE(synthesise(request).order);
    for (Bytes& limit : request.memory_limit) {
      if (limit.value <= 1) continue;
      limit.value -= 1;
      EXPECT_FALSE(synthesise(request).order);
      limit.value += 1;
    }
  }
  EXPECT_GT(low, 50);
}

TEST(Synthesis, KeepsToTheLimitWhateverTheActionsTakeAndGive) {
  Dice dice(6);
  int orders = 0, none = 0;
  for (int trial = 0; trial < 400; ++trial) {
    SCOPED_TRACE(trial);
    SynthesisRequest request = random_request(dice);
    request.costs.memory.clear();
    for (int s = 0; s < request.placement.stages(); ++s) {
      request.costs.memory.push_back({Bytes(dice.between(-3, 9)), Bytes(dice.between(-6, 3)),
                                      Bytes(dice.between(-6, 3)), Bytes(dice.below(3))});
    }
    request.memory_limit = {Bytes(dice.between(5, 40))};
    const SynthesisResult result = synthesise(request);
    if (!result.order) {
      ++none;
      request.memory_limit = result.least_limit;
      EXPECT_TRUE(synthesise(request).order);
      continue;
    }
    ++orders;
    const auto figures = engine(*result.order, request.costs);
    ASSERT_TRUE(figures);
    EXPECT_LE(result.lower_bound_ns, result.value_ns);
    for (const RankFigures& rank : figures->ranks)
      EXPECT_LE(rank.peak_bytes, request.memory_limit[0].value);
  }
  EXPECT_GT(orders, 100);
  EXPECT_GT(none, 20);
}

TEST(Synthesis, TakesTheFusedBackwardWhereItIsShorter) {
  SynthesisRequest request;
  request.placement = Placement::loop(3, 1);
  request.micro_batches = 6;
  StageCosts each;
  each.f = each.i = each.w = Nanoseconds(10);
  each.b = Nanoseconds(11);
  request.costs = CostTable::uniform(3, each);
  request.budget_ns = kMillisecond;
  const SynthesisResult result = synthesise(request);
  // 1F1B: (m + p - 1) (F + B); apart, a rank would work for 6 * 30.
  EXPECT_EQ(result.value_ns, 8 * 21);
  EXPECT_EQ(result.best_named_ns, 8 * 21);
  EXPECT_EQ(engine(*result.order, request.costs)->makespan_ns, 8 * 21);
}

TEST(Synthesis, RefusesWhatHasNoMeaning) {
  SynthesisRequest request;
  request.placement = Placement::loop(2, 1);
  EXPECT_THROW((void)synthesise(request), InputError);  // no costs
  request.costs = CostTable::uniform(2, {});
  EXPECT_EQ(synthesise(request).value_ns, 0);
  request.memory_limit.assign(3, Bytes(4));
  EXPECT_THROW((void)synthesise(request), InputError);  // limits for three ranks
  request.memory_limit.clear();
  request.placement = Placement::explicit_micro_batches({{RankId(0)}, {RankId(1)}}, 2);
  EXPECT_THROW((void)synthesise(request), InputError);  // by micro-batch
}

}  // namespace synthesis_test
}  // namespace pipewright::planner
