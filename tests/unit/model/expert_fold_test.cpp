#include "core/model/expert_fold.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "core/model/row_parts.hpp"
#include "core/order/devices.hpp"
#include "core/plan/rank_axes.hpp"

namespace pipewright {
namespace expert_fold_test {

StageDivision with_rows(int tensor, int context = 1) {
  return {.tensor = tensor, .rows = true, .context = context};
}

TEST(ExpertFold, GroupsEndWhereAnAxisDoes) {
  const auto expect = [](const StageDivision& ranks, int holders, int along_ep, ExpertFold fold,
                         const char* group) {
    const auto folded = with_folded_experts(ranks, holders);
    ASSERT_TRUE(folded);
    EXPECT_EQ(folded->experts, along_ep);
    EXPECT_EQ(folded->fold, fold);
    EXPECT_EQ(folded->expert_holders(), holders);
    EXPECT_EQ(expert_group_name(*folded), group);
    // The ranks that differ so are as many.
    const auto span = span_of(rank_axes(*folded, 8), group);
    ASSERT_TRUE(span);
    EXPECT_EQ(*span, (AxisSpan{holders, 1}));
  };
  expect(with_rows(2), 2, 1, ExpertFold::Tensor, "tp");
  expect(with_rows(2), 8, 4, ExpertFold::Tensor, "tp+ep");
  expect(with_rows(2, 2), 2, 1, ExpertFold::Tensor, "tp");
  expect(with_rows(2, 2), 4, 1, ExpertFold::TensorAndContext, "tp+cp");
  expect(with_rows(2, 4), 16, 2, ExpertFold::TensorAndContext, "tp+cp+ep");
  EXPECT_FALSE(with_folded_experts(with_rows(4), 2));
  EXPECT_FALSE(with_folded_experts(with_rows(2), 3));
  EXPECT_FALSE(with_folded_experts(with_rows(2, 4), 4)) << "two of four along cp";
}

TEST(ExpertFold, WhatCannotBeDealtOutIsSaidWithTheNearestThatCan) {
  EXPECT_EQ(fold_fault(with_rows(2), 4, 8), "");
  EXPECT_EQ(fold_fault(with_rows(2, 2), 3, 12), "");
  EXPECT_EQ(fold_fault(with_rows(2), 3, 4),
            "ep 4 does not deal whole experts (expert_tensor_parallel_size 1) out over tp 2 * cp 1 "
            "* dp 3: it has to be tp, or tp * cp times a divisor of dp; the nearest are 2 and 6");
  EXPECT_NE(fold_fault(with_rows(4), 1, 2).find("; the nearest is 4"), std::string::npos);
  EXPECT_NE(fold_fault(with_rows(2), 2, 64).find("; the nearest is 4"), std::string::npos);
  EXPECT_NE(fold_fault({.tensor = 2}, 1, 2).find("take use_sequence_parallel true"),
            std::string::npos);
}

TEST(ExpertFold, ExpertsAreDividedAlongEpAloneUnlessWholeOnesAreAskedFor) {
  const StageDivision plain{.tensor = 2, .experts = 2, .rows = true};
  EXPECT_EQ(division_with_experts(with_rows(2), 2, 0), plain);
  EXPECT_EQ(division_with_experts(with_rows(2), 2, 2), plain);
  EXPECT_EQ(division_with_experts(with_rows(2), 2, 1), *with_folded_experts(with_rows(2), 2));
  EXPECT_EQ(division_with_experts({}, 2, 1), (StageDivision{.experts = 2}));
}

TEST(ExpertFold, DevicesOfOnePlaceHoldTheSameExperts) {
  const std::vector<MeshAxis> devices{{"tp", 2}, {"cp", 2}, {"ep", 2}};
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(place_of_experts(devices, RankId(rank)), rank / 4 * 4);
    EXPECT_EQ(place_of_experts(devices, RankId(rank), true), rank / 2 * 2);
  }
}

/// Row by row as ranks have them: each place along cp its chunks, of these each along tp its part.
std::vector<std::int64_t> rows_of_rank(const RowParts& place) {
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < place.rows(); ++i)
    rows.push_back(row_of_all(place.context, place.sequence, place.tensor * place.rows() + i));
  return rows;
}

TEST(RowParts, StretchesAreTheMicroBatchInItsOrder) {
  for (const int samples : {1, 2, 3}) {
    for (const int context : {1, 2, 4}) {
      for (const int tensor : {1, 2, 4}) {
        SCOPED_TRACE(std::to_string(samples) + " samples, cp " + std::to_string(context) + ", tp " +
                     std::to_string(tensor));
        const RowParts first{
            .samples = samples, .sequence = 12, .context = {0, context}, .tensor_parts = tensor};
        std::vector<std::vector<std::int64_t>> rows;
        for (int c = 0; c < context; ++c) {
          for (int t = 0; t < tensor; ++t) {
            RowParts own = first;
            own.context.index = c;
            own.tensor = t;
            EXPECT_EQ(own.index(), static_cast<int>(rows.size()));
            rows.push_back(rows_of_rank(own));
          }
        }
        std::int64_t next = 0;
        const std::int64_t each = first.stretch();
        for_each_stretch(first, [&](int rank, int stretch) {
          for (std::int64_t i = 0; i < each; ++i)
            EXPECT_EQ(
                rows[static_cast<std::size_t>(rank)][static_cast<std::size_t>(stretch * each + i)],
                next++);
        });
        EXPECT_EQ(next, std::int64_t{samples} * 12 * context);
      }
    }
  }
}

TEST(RowParts, AreAsLongAsTheyCanBe) {
  EXPECT_EQ((RowParts{.samples = 3, .sequence = 12, .tensor_parts = 4}.stretches()), 1);
  EXPECT_EQ((RowParts{.samples = 3, .sequence = 12, .context = {0, 2}}.stretches()), 6);
  EXPECT_EQ(
      (RowParts{.samples = 2, .sequence = 12, .context = {0, 2}, .tensor_parts = 2}.stretches()),
      2);
  // Nine rows of chunks of six: a chunk and a half.
  EXPECT_EQ(
      (RowParts{.samples = 3, .sequence = 12, .context = {0, 2}, .tensor_parts = 4}.stretches()),
      3);
}

}  // namespace expert_fold_test
}  // namespace pipewright
