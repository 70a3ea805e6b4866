// Reshards of PaddlePaddle's tests: local shapes and values, and what its table of pairs would
// cost.
#include <gtest/gtest.h>

#include "core/spmd/reshard_cases.hpp"
#include "tests/golden/golden_orders.hpp"

namespace pipewright {
namespace spmd_reshard_test {

namespace fs = std::filesystem;

/// Paddle's words for what a rank has, where they are words about each rank.
std::string in_our_words(const std::string& value) {
  return value == "full" ? "full tensor" : value;
}

void expect_answer(const Json& expected, const Json& answer) {
  for (const char* key : {"local_shapes", "in_local_shapes", "rank_piece"}) {
    const Json asserted = expected.value(key, Json::object());
    for (const auto& [rank, fields] : asserted.items()) {
      EXPECT_EQ(answer.at(key).at(rank), fields) << key;
    }
  }
  if (!expected.contains("value") || !expected.at("value").is_object()) return;
  for (const auto& [rank, value] : expected.at("value").items()) {
    const std::string ours = answer.at("value").at(rank).get<std::string>();
    const bool whole = ours == "full tensor" || ours == "copy of input";
    EXPECT_TRUE(ours == in_our_words(value) || (value == "full" && whole)) << rank << ": " << ours;
  }
}

TEST(SpmdReshard, AllCasesOfPaddlesTestsAgree) {
  const fs::path path = golden::golden_dir() / "paddle/spmd.json";
  PIPEWRIGHT_NEEDS_GOLDEN(path);
  const Json document = parse_json(golden::text_of(path), path.string());
  const auto cases = spmd::read_reshard_cases(JsonCursor(document, path.string()));
  EXPECT_EQ(cases.size(), 37U);
  for (std::size_t at = 0; at < cases.size(); ++at) {
    const spmd::ReshardCase& one = cases[at];
    SCOPED_TRACE(one.id);
    const spmd::ReshardPlan plan = spmd::cheapest_reshard(one.shape, one.from, one.to);
    expect_answer(document.at("reshard_cases").at(at).at("expect"), answer_to(one, plan));
  }
}

/// Two all-gathers and two slices in Paddle: (2 - 1) of the 16 elements of each, then half of 64.
TEST(SpmdReshard, SwapsTwoDivisionsWithoutGathering) {
  const spmd::ProcessMesh mesh = spmd::ProcessMesh::of_shape({2, 2});
  const spmd::Layout rows_first{.dims = {{0}, {1}, {}}, .partial = {}};
  const spmd::Layout columns_first{.dims = {{1}, {0}, {}}, .partial = {}};
  const auto plan = spmd::cheapest_reshard({2, 4, 8}, {mesh, rows_first}, {mesh, columns_first});
  ASSERT_EQ(plan.steps.size(), 1U);
  EXPECT_EQ(plan.bytes, 16 * 4);
  EXPECT_LT(plan.bytes, (16 + 32) * 4);
}

/// Paddle sums all of it and slices afterwards.
TEST(SpmdReshard, SlicesBeforeItSums) {
  const spmd::ProcessMesh mesh = spmd::ProcessMesh::of_shape({2, 2});
  const spmd::Layout partial{.dims = {{}, {}, {}}, .partial = {{0, spmd::Reduction::Sum}}};
  const spmd::Layout divided{.dims = {{}, {1}, {}}, .partial = {}};
  const auto plan = spmd::cheapest_reshard({2, 4, 8}, {mesh, partial}, {mesh, divided});
  ASSERT_EQ(plan.steps.size(), 2U);
  EXPECT_EQ(plan.steps[0].kind, spmd::ReshardStep::Kind::Slice);
  EXPECT_EQ(plan.bytes, 32 * 4);
}

}  // namespace spmd_reshard_test
}  // namespace pipewright
