#include "planner/partition/partition.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <tuple>

#include "planner/partition/rank_cut.hpp"

namespace pipewright::planner {
namespace partition_test {

/// All ways to cut the layers, judged by (largest, sum of squares, cuts), least first.
class BruteForce {
 public:
  BruteForce(const std::vector<std::int64_t>& costs, int stages)
      : BruteForce({costs}, std::vector<int>(static_cast<std::size_t>(stages), 0)) {}
  BruteForce(std::vector<std::vector<std::int64_t>> costs, std::vector<int> kinds,
             BesidesLayers besides = {})
      : costs_(std::move(costs)), kinds_(std::move(kinds)), besides_(std::move(besides)) {
    std::vector<int> cuts{0};
    extend(cuts);
  }
  Partition best() const { return {best_cuts_, best_largest_}; }

 private:
  void extend(std::vector<int>& cuts) {
    const int layers = static_cast<int>(costs_.front().size());
    if (cuts.size() == kinds_.size()) {
      cuts.push_back(layers);
      judge(cuts);
      cuts.pop_back();
      return;
    }
    for (int next = cuts.back() + 1; next < layers; ++next) {
      cuts.push_back(next);
      extend(cuts);
      cuts.pop_back();
    }
  }
  void judge(const std::vector<int>& cuts) {
    std::int64_t largest = 0, squares = 0;
    for (std::size_t s = 0; s + 1 < cuts.size(); ++s) {
      std::int64_t sum = besides_.fixed.empty() ? 0 : besides_.fixed[s];
      const auto& own = costs_[static_cast<std::size_t>(kinds_[s])];
      for (int l = cuts[s]; l < cuts[s + 1]; ++l) sum += own[static_cast<std::size_t>(l)];
      largest = std::max(largest, sum);
      if (!besides_.at_cut.empty()) {
        for (const int cut : {cuts[s], cuts[s + 1]})
          largest = std::max(largest, besides_.at_cut[s][static_cast<std::size_t>(cut)]);
      }
      squares += sum * sum;
    }
    if (std::tie(largest, squares, cuts) < std::tie(best_largest_, best_squares_, best_cuts_)) {
      std::tie(best_largest_, best_squares_, best_cuts_) = std::tie(largest, squares, cuts);
    }
  }

  std::vector<std::vector<std::int64_t>> costs_;
  std::vector<int> kinds_;  // by stage
  BesidesLayers besides_;
  std::vector<int> best_cuts_;
  std::int64_t best_largest_ = std::numeric_limits<std::int64_t>::max(),
               best_squares_ = best_largest_;
};

TEST(Partition, EqualsBruteForceOnRandomLayers) {
  std::mt19937_64 random(20240917);
  for (int round = 0; round < 3000; ++round) {
    const int layers = 1 + static_cast<int>(random() % 11);
    const int stages = 1 + static_cast<int>(random() % static_cast<unsigned>(layers));
    // Small ranges make ties and free layers, large ones make uneven layers.
    const std::uint64_t range = round % 3 == 0 ? 3 : round % 3 == 1 ? 10 : 1000;
    std::vector<std::int64_t> costs;
    for (int l = 0; l < layers; ++l) costs.push_back(static_cast<std::int64_t>(random() % range));
    const auto got = balanced_partition(costs, stages);
    ASSERT_TRUE(got);
    EXPECT_EQ(*got, BruteForce(costs, stages).best())
        << ::testing::PrintToString(costs) << " into " << stages;
  }
}

TEST(Partition, EqualsBruteForceWhereRanksDifferInSpeed) {
  std::mt19937_64 random(7);
  const auto below = [&](std::uint64_t most) { return static_cast<int>(random() % most); };
  for (int round = 0; round < 3000; ++round) {
    const int layers = 1 + below(11), stages = 1 + below(static_cast<unsigned>(layers));
    const std::uint64_t range = round % 3 == 0 ? 3 : round % 3 == 1 ? 10 : 1000;
    std::vector<std::vector<std::int64_t>> costs(static_cast<std::size_t>(2 + below(2)));
    for (auto& of_kind : costs) {
      for (int l = 0; l < layers; ++l)
        of_kind.push_back(static_cast<std::int64_t>(random() % range));
    }
    if (round % 2 == 0) {  // as devices are: one slower than the other by much the same factor
      for (std::size_t l = 0; l < costs[1].size(); ++l) costs[1][l] = costs[0][l] * 5 / 2;
    }
    std::vector<int> kinds;
    for (int s = 0; s < stages; ++s) kinds.push_back(below(costs.size()));
    const auto got = balanced_partition(costs, kinds);
    ASSERT_TRUE(got);
    EXPECT_EQ(*got, BruteForce(costs, kinds).best())
        << ::testing::PrintToString(costs) << " on " << ::testing::PrintToString(kinds);
  }
}

/// Kinds that are alike have to give what one kind gives, to the last tie.
TEST(Partition, EqualsBruteForceWhereStagesCostSomethingBesidesTheirLayers) {
  std::mt19937 random(7);
  const auto below = [&](unsigned end) { return static_cast<std::int64_t>(random() % end); };
  for (int round = 0; round < 500; ++round) {
    const int layers = 1 + static_cast<int>(below(9));
    const int stages = 1 + static_cast<int>(below(static_cast<unsigned>(layers)));
    std::vector<std::vector<std::int64_t>> costs(2);
    for (auto& of_kind : costs) {
      for (int l = 0; l < layers; ++l) of_kind.push_back(below(30));
    }
    std::vector<int> kinds;
    BesidesLayers besides;
    for (int s = 0; s < stages; ++s) {
      kinds.push_back(static_cast<int>(below(2)));
      besides.fixed.push_back(below(3) * below(40));
      if (round % 2 == 0) continue;
      auto& at_cut = besides.at_cut.emplace_back();
      for (int l = 0; l <= layers; ++l) at_cut.push_back(below(120));
    }
    const auto got = balanced_partition(costs, kinds, besides);
    ASSERT_TRUE(got);
    EXPECT_EQ(*got, BruteForce(costs, kinds, besides).best()) << round;
  }
}

TEST(Partition, RanksThatDifferInNameOnlyChangeNothing) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 1000; ++round) {
    const int layers = 2 + static_cast<int>(random() % 30);
    const int stages = 2 + static_cast<int>(random() % static_cast<unsigned>(layers - 1));
    std::vector<std::int64_t> costs;
    for (int l = 0; l < layers; ++l) costs.push_back(static_cast<std::int64_t>(random() % 4));
    std::vector<int> kinds;
    for (int s = 0; s < stages; ++s) kinds.push_back(s % 2);
    const std::vector<std::vector<std::int64_t>> both{costs, costs};
    EXPECT_EQ(balanced_partition(both, kinds), balanced_partition(costs, stages));
  }
}

/// Twelve equal layers, two ranks that take twice as long for one: equal numbers would take 6.
TEST(Partition, SlowRanksGetFewerLayers) {
  const std::vector<std::vector<std::int64_t>> costs{std::vector<std::int64_t>(12, 1),
                                                     std::vector<std::int64_t>(12, 2)};
  const auto got = balanced_partition(costs, std::vector<int>{0, 0, 1, 1});
  ASSERT_TRUE(got);
  EXPECT_EQ(got->first_layer, (std::vector<int>{0, 4, 8, 10, 12}));
  EXPECT_EQ(got->largest, 4);
}

/// A stage may not be left out because its rank is slow.
TEST(Partition, TheSlowestRankKeepsALayer) {
  const std::vector<std::vector<std::int64_t>> costs{{1, 1, 1, 1}, {100, 100, 50, 100}};
  const auto got = balanced_partition(costs, std::vector<int>{0, 1, 0});
  ASSERT_TRUE(got);
  EXPECT_EQ(got->first_layer, (std::vector<int>{0, 2, 3, 4}));
  EXPECT_EQ(got->largest, 50);
}

/// An embedding that costs nothing, six blocks of 10, a head of 25: four stages cannot do better
/// than 25 (blocks alone would need 20, the head is more), and the most even rest is 20, 20, 20.
TEST(Partition, HeadAndEmbeddingWeigh) {
  const std::vector<std::int64_t> costs = {0, 10, 10, 10, 10, 10, 10, 25};
  const auto got = balanced_partition(costs, 4);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->first_layer, (std::vector<int>{0, 3, 5, 7, 8}));
  EXPECT_EQ(got->largest, 25);
}

TEST(Partition, TiesMakeEarlyStagesShort) {
  const std::vector<std::int64_t> costs = {1, 1, 1};
  EXPECT_EQ(balanced_partition(costs, 2)->first_layer, (std::vector<int>{0, 1, 3}));
}

TEST(Partition, RefusesMoreStagesThanLayers) {
  const std::vector<std::int64_t> costs = {1, 1};
  EXPECT_FALSE(balanced_partition(costs, 3));
  EXPECT_FALSE(balanced_partition(costs, 0));
  EXPECT_FALSE(even_partition(costs, 3));
}

/// Nanoseconds of a large model: the squares pass 64 bits.
TEST(Partition, LargeCosts) {
  const std::vector<std::int64_t> costs(96, std::int64_t{40'000'000'000});
  const auto got = balanced_partition(costs, 8);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->largest, std::int64_t{480'000'000'000});
  EXPECT_EQ(got->first_layer, even_partition(costs, 8)->first_layer);
}

std::vector<std::int64_t> sums_of_ranks(const Partition& cut, const LayerCosts& costs,
                                        const CutShape& shape) {
  std::vector<std::int64_t> sums;
  for (std::size_t s = 0; s < shape.rank_of_stage.size(); ++s) {
    const auto rank = static_cast<std::size_t>(shape.rank_of_stage[s]);
    if (sums.size() <= rank) sums.resize(rank + 1);
    const auto& own = costs.of_kind[static_cast<std::size_t>(shape.kind_of_stage[s])];
    for (int l = cut.first_layer[s]; l < cut.first_layer[s + 1]; ++l)
      sums[rank] += own[static_cast<std::size_t>(l)];
  }
  return sums;
}

std::int64_t most_of(const std::vector<std::int64_t>& sums) {
  return *std::max_element(sums.begin(), sums.end());
}

/// Four stages in a V on a fast and a slow rank, fourteen layers. Nine layers on the fast rank and
/// five on the slow one make ten for the busier.
TEST(RankCut, RanksThatDifferHaveTheSameToDo) {
  const LayerCosts costs{{std::vector<std::int64_t>(14, 1), std::vector<std::int64_t>(14, 2)},
                         {0, 1}};
  const CutShape shape{{0, 1, 1, 0}, {0, 1, 1, 0}};
  const Partition by_stage = *balanced_partition(costs.of_kind, shape.kind_of_stage);
  const Partition by_rank = rank_evened(by_stage, costs, shape);
  EXPECT_EQ(most_of(sums_of_ranks(by_rank, costs, shape)), 10);
  EXPECT_EQ(by_rank.first_layer.back(), 14);
}

TEST(RankCut, NeverMakesTheBusiestRankBusierAndLeavesNoStageEmpty) {
  std::mt19937_64 random(9);
  int better = 0;
  for (int round = 0; round < 1000; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 3);
    const int chunks = 2 + static_cast<int>(random() % 2);
    const int stages = ranks * chunks, layers = stages + static_cast<int>(random() % 20);
    LayerCosts costs{{{}, {}}, {}};
    for (int l = 0; l < layers; ++l) {
      costs.of_kind[0].push_back(static_cast<std::int64_t>(1 + random() % 10));
      costs.of_kind[1].push_back(costs.of_kind[0].back() * 5 / 2);
    }
    for (int r = 0; r < ranks; ++r) costs.kind_of_rank.push_back(r % 2);
    const CutShape shape = cut_shape(costs, Placement::loop(ranks, chunks));
    const Partition by_stage = *balanced_partition(costs.of_kind, shape.kind_of_stage);
    const Partition by_rank = rank_evened(by_stage, costs, shape);
    const std::int64_t before = most_of(sums_of_ranks(by_stage, costs, shape));
    const std::int64_t after = most_of(sums_of_ranks(by_rank, costs, shape));
    EXPECT_LE(after, before);
    better += after < before ? 1 : 0;
    for (std::size_t s = 0; s + 1 < by_rank.first_layer.size(); ++s)
      EXPECT_LT(by_rank.first_layer[s], by_rank.first_layer[s + 1]);
    EXPECT_EQ(by_rank.first_layer.back(), layers);
  }
  EXPECT_GT(better, 300);
}

TEST(RankCut, RanksThatAreAlikeAreCutByStage) {
  const LayerCosts costs{{{1, 2, 3, 4}}, {}};
  EXPECT_TRUE(cut_shape(costs, Placement::loop(2, 2)).rank_of_stage.empty());
  const LayerCosts mixed{{{1, 2, 3, 4}, {2, 4, 6, 8}}, {0, 1}};
  EXPECT_TRUE(cut_shape(mixed, Placement::loop(2, 1)).rank_of_stage.empty());
  EXPECT_EQ(cut_shape(mixed, Placement::v_shape(2)).rank_of_stage, (std::vector<int>{0, 1, 1, 0}));
  EXPECT_EQ(cut_shape(mixed, Placement::v_shape(2)).kind_of_stage, (std::vector<int>{0, 1, 1, 0}));
}

TEST(Partition, EvenGivesTheFirstStagesOneLayerMore) {
  const std::vector<std::int64_t> costs = {5, 1, 1, 1, 1, 1, 7};
  const auto got = even_partition(costs, 3);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->first_layer, (std::vector<int>{0, 3, 5, 7}));
  EXPECT_EQ(got->largest, 8);
}

}  // namespace partition_test
}  // namespace pipewright::planner
