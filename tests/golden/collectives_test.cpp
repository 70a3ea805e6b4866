// Times of NCCL's all-reduce that others measured: each size of groups predicted from the others.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/costs/collective_fit.hpp"

namespace pipewright {
namespace {

constexpr const char* kRows = PIPEWRIGHT_GOLDEN_DIR "/measured/nccl_allreduce_a100.json";

TEST(MeasuredCollectives, EachSizeOfGroupsOnA100IsPredictedFromTheOthers) {
  if (!std::filesystem::exists(kRows)) GTEST_SKIP() << "no " << kRows;
  const MeasuredCollectives measured = read_collective_text(read_text(kRows), kRows, 8);
  const std::vector<LeftOutGroup> groups = leave_each_size_out(measured);
  ASSERT_EQ(groups.size(), 3U) << "2, 4 and 8 GPUs";
  for (const LeftOutGroup& group : groups) {
    EXPECT_EQ(group.errors.rows, 28);
    EXPECT_LE(group.errors.mean, 0.10) << group.members << " GPUs";
    EXPECT_LE(group.errors.worst, 0.30) << group.members << " GPUs";
    // Physical: microseconds of a launch and a step, a rate below that of the links.
    EXPECT_GT(group.model.launch_ns, 3'000);
    EXPECT_LT(group.model.launch_ns, 8'000);
    EXPECT_GT(group.model.step_ns, 1'500);
    EXPECT_LT(group.model.step_ns, 2'200);
    EXPECT_GT(group.model.bytes_per_second, 200e9);
    EXPECT_LT(group.model.bytes_per_second, 300e9);
  }
  EXPECT_LE(errors_of(fit_collectives(measured), measured.rows).mean, 0.06);
}

TEST(MeasuredCollectives, TheExampleHoldsTheSameRows) {
  if (!std::filesystem::exists(kRows)) GTEST_SKIP() << "no " << kRows;
  const std::string example = PIPEWRIGHT_SOURCE_DIR "/examples/nccl-all-reduce-a100.json";
  const auto golden = read_collective_text(read_text(kRows), kRows, 8).rows;
  const auto ours = read_collective_text(read_text(example), example, 8).rows;
  ASSERT_EQ(ours.size(), golden.size());
  for (std::size_t r = 0; r < ours.size(); ++r) {
    EXPECT_EQ(ours[r].group.members, golden[r].group.members);
    EXPECT_EQ(ours[r].bytes, golden[r].bytes);
    EXPECT_EQ(ours[r].ns, golden[r].ns);
  }
}

}  // namespace
}  // namespace pipewright
