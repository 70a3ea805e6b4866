// The proof of small problems against the enumeration of every order.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "planner/synthesis/bound.hpp"
#include "planner/synthesis/prove.hpp"
#include "planner/synthesis/synthesis.hpp"
#include "planner/synthesis/tune_rules.hpp"
#include "tests/reference/random_order.hpp"

namespace pipewright::planner {
namespace synthesis_exhaustive_test {

using reference::Dice;

constexpr int kRanks = 2;
constexpr std::int64_t kNone = std::int64_t{1} << 60;

struct Step {
  int kind = 0, stage = 0, micro_batch = 0;
};

/// All lists of a rank that keep F, I, W of a micro-batch in this order and the memory limit;
/// `in_order`: micro-batches of a kind and stage in order, too.
class Lists {
 public:
  Lists(const SynthesisRequest& request, int rank, bool in_order)
      : request_(request), in_order_(in_order), limit_(request.memory_limit.at(0).value) {
    for (const StageId s : request.placement.stages_of(RankId(rank))) stages_.push_back(s.value);
    done_.assign(stages_.size() * static_cast<std::size_t>(request.micro_batches), 0);
    extend(0);
  }
  std::vector<std::vector<Step>> all;

 private:
  std::int64_t change(int kind, int stage) const {
    const StageMemory& memory = request_.costs.memory[static_cast<std::size_t>(stage)];
    return kind == 0 ? memory.f.value : kind == 1 ? memory.i.value : memory.w.value;
  }
  void extend(std::int64_t held) {
    const auto m = static_cast<std::size_t>(request_.micro_batches);
    if (list_.size() == 3 * done_.size()) return all.push_back(list_);
    for (std::size_t c = 0; c < done_.size(); ++c) {
      const int kind = done_[c], stage = stages_[c / m];
      if (kind == 3) continue;
      if (in_order_ && c % m > 0 && done_[c - 1] <= kind) continue;
      const std::int64_t now = held + change(kind, stage);
      if (limit_ > 0 && now > limit_) continue;
      ++done_[c];
      list_.push_back({kind, stage, static_cast<int>(c % m)});
      extend(now);
      list_.pop_back();
      --done_[c];
    }
  }

  const SynthesisRequest& request_;
  bool in_order_;
  std::int64_t limit_;
  std::vector<int> stages_;
  std::vector<int> done_;  // by stage of the rank and micro-batch: F, I, W done
  std::vector<Step> list_;
};

/// Two ranks in turns until none gets on; kNone for orders that never end.
std::int64_t value_of(const SynthesisRequest& request,
                      const std::array<const std::vector<Step>*, kRanks>& lists) {
  const int stages = request.placement.stages();
  std::array<std::array<std::array<std::int64_t, 4>, 4>, 2> end;  // F or I, stage, micro-batch
  for (auto& kind : end) {
    for (auto& row : kind) row.fill(kNone);
  }
  std::array<std::int64_t, kRanks> clock{}, begin{-1, -1};
  std::array<std::size_t, kRanks> next{};
  const std::int64_t latency = request.costs.every_route.latency.value;
  const auto rank_of = [&](int s) {
    return request.placement.rank_of(StageId(s), MicroBatchId(0)).value;
  };
  const auto input = [&](const Step& step) -> std::int64_t {
    const int from = step.kind == 0 ? step.stage - 1 : step.stage + 1;
    if (step.kind == 2 || from < 0 || from >= stages) return 0;
    const std::int64_t made =
        end[static_cast<std::size_t>(step.kind)][static_cast<std::size_t>(from)]
           [static_cast<std::size_t>(step.micro_batch)];
    return made + (rank_of(from) == rank_of(step.stage) ? 0 : latency);
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < kRanks; ++r) {
      for (; next[r] < lists[r]->size(); ++next[r], moved = true) {
        const Step& step = (*lists[r])[next[r]];
        const std::int64_t ready = input(step);
        if (ready >= kNone) break;
        const StageCosts& costs = request.costs.stages[static_cast<std::size_t>(step.stage)];
        clock[r] = std::max(clock[r], ready);
        if (begin[r] < 0) begin[r] = clock[r];
        clock[r] += step.kind == 0 ? costs.f.value : step.kind == 1 ? costs.i.value : costs.w.value;
        if (step.kind < 2)
          end[static_cast<std::size_t>(step.kind)][static_cast<std::size_t>(step.stage)]
             [static_cast<std::size_t>(step.micro_batch)] = clock[r];
      }
    }
  }
  std::int64_t value = 0;
  for (std::size_t r = 0; r < kRanks; ++r) {
    if (next[r] < lists[r]->size()) return kNone;
    const bool span = request.objective == Objective::Span;
    value = std::max(value, clock[r] - (span ? std::max<std::int64_t>(begin[r], 0) : 0));
  }
  return value;
}

std::int64_t best_of_all(const SynthesisRequest& request, bool in_order) {
  const Lists zero(request, 0, in_order), one(request, 1, in_order);
  std::int64_t best = kNone;
  for (const auto& a : zero.all) {
    for (const auto& b : one.all) best = std::min(best, value_of(request, {&a, &b}));
  }
  return best;
}

SynthesisRequest random_request(Dice& dice, Placement placement, int micro_batches) {
  SynthesisRequest request;
  request.placement = std::move(placement);
  request.micro_batches = micro_batches;
  std::int64_t least = 0;
  for (int s = 0; s < request.placement.stages(); ++s) {
    StageCosts costs;
    costs.f = Nanoseconds(dice.below(8));
    costs.i = Nanoseconds(dice.below(8));
    costs.w = Nanoseconds(dice.below(8));
    costs.b = costs.i + costs.w;
    request.costs.stages.push_back(costs);
    const int f = dice.between(1, 5), i = dice.below(f + 1);
    request.costs.memory.push_back({Bytes(f), Bytes(-i), Bytes(i - f), Bytes(0)});
    least += f;
  }
  request.costs.every_route.latency = Nanoseconds(dice.below(4));
  request.memory_limit = {Bytes(dice.chance(25) ? 0 : least + dice.below(8))};
  request.objective = dice.chance(50) ? Objective::Makespan : Objective::Span;
  request.budget_ns = 100'000;
  request.prove = true;
  return request;
}

TEST(SynthesisProof, IsTheBestOfAllOrdersInOrder) {
  Dice dice(1);
  for (int trial = 0; trial < 400; ++trial) {
    SCOPED_TRACE(trial);
    const SynthesisRequest request =
        random_request(dice, Placement::loop(kRanks, 1), dice.between(1, 3));
    const SynthesisResult result = synthesise(request);
    ASSERT_TRUE(result.proven);
    EXPECT_EQ(result.value_ns, best_of_all(request, true));
  }
}

TEST(SynthesisProof, NoOrderAtAllHasAShorterMakespan) {
  Dice dice(2);
  for (int trial = 0; trial < 40; ++trial) {
    SCOPED_TRACE(trial);
    SynthesisRequest request = random_request(dice, Placement::loop(kRanks, 1), trial < 37 ? 2 : 3);
    request.objective = Objective::Makespan;
    EXPECT_EQ(synthesise(request).value_ns, best_of_all(request, false));
  }
}

TEST(SynthesisProof, HoldsForTwoChunksAndForStagesInAnyPlace) {
  Dice dice(3);
  for (int trial = 0; trial < 60; ++trial) {
    SCOPED_TRACE(trial);
    const bool v = dice.chance(40);
    std::vector<RankId> ranks = {RankId(0), RankId(1)};
    ranks.insert(ranks.begin() + dice.below(3), RankId(dice.below(kRanks)));
    const SynthesisRequest request = random_request(
        dice, v ? Placement::v_shape(kRanks) : Placement::explicit_stages(ranks, kRanks),
        v ? 1 : dice.between(1, 2));
    const SynthesisResult result = synthesise(request);
    ASSERT_TRUE(result.proven);
    EXPECT_EQ(result.value_ns, best_of_all(request, true));
  }
}

/// Branch and bound that knows nothing of the bound it is compared with, on problems too large for
/// an enumeration.
TEST(SynthesisProof, TheBoundIsNotAboveTheOptimumAndOftenEqual) {
  Dice dice(4);
  int closed = 0, equal = 0;
  for (int trial = 0; trial < 150; ++trial) {
    SCOPED_TRACE(trial);
    const bool v = dice.chance(50);
    const int p = dice.between(2, v ? 3 : 4);
    const SynthesisRequest request = random_request(
        dice, v ? Placement::v_shape(p) : Placement::loop(p, 1), dice.between(2, v ? 4 : 6));
    const synthesis::Problem problem = synthesis::problem_of(request);
    synthesis::Search search(problem, -1);
    std::mt19937_64 engine(1);
    synthesis::tune_rules(search, engine, 100'000);
    std::int64_t nodes = 100'000;
    if (!synthesis::prove(search, nodes)) continue;
    ++closed;
    const std::int64_t bound = synthesis::lower_bound(problem);
    EXPECT_LE(bound, search.best_value);
    if (bound == search.best_value) ++equal;
  }
  EXPECT_GT(closed, 120);
  EXPECT_GT(equal, closed / 3);
}

}  // namespace synthesis_exhaustive_test
}  // namespace pipewright::planner
