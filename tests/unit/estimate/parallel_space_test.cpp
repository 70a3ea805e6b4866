// Which setups a search visits.
#include "planner/estimate/parallel_space.hpp"

#include <gtest/gtest.h>

namespace pipewright::planner {
namespace parallel_space_test {

/// Setups with sequence parallelism, and without.
std::pair<int, int> visited(const FrameworkTraits& framework, const ParallelSpace& space) {
  int with = 0, without = 0;
  for_each_setup(gpt_architecture("gpt", 4096, 16, 32, 51200, 2048), framework, space,
                 {[&](const ParallelSetup& setup) { ++(setup.sequence_parallel ? with : without); },
                  [](LeftOut, const ParallelSetup&) {}});
  return {with, without};
}

TEST(ParallelSpace, HasSequenceParallelismWhereTheFrameworkHasIt) {
  ParallelSpace space{.devices = 8, .global_batch = 64};
  space.tensor = {8};
  space.recompute = {LayerRecompute::None};
  const auto [with, without] = visited(megatron_core(), space);
  EXPECT_GT(with, 0);
  EXPECT_EQ(with, without);
  for (const FrameworkTraits& old :
       {megatron_lm_of_2021(), megatron_deepspeed(), megatron_deepspeed_timed()}) {
    EXPECT_EQ(visited(old, space), (std::pair{0, without})) << old.name;
  }
  // Asked for, as of a fork that has it.
  space.sequence_parallel = {true};
  EXPECT_EQ(visited(megatron_deepspeed(), space), (std::pair{with, 0}));
}

TEST(ParallelSpace, HasSeveralStagesARankWhereTheFrameworkInterleaves) {
  ParallelSpace space{.devices = 8, .global_batch = 64};
  space.pipeline = {4};
  const auto most_stages = [&](const FrameworkTraits& framework) {
    int most = 0;
    for_each_setup(gpt_architecture("gpt", 4096, 16, 32, 51200, 2048), framework, space,
                   {[&](const ParallelSetup& setup) { most = std::max(most, setup.chunks); },
                    [](LeftOut, const ParallelSetup&) {}});
    return most;
  };
  EXPECT_EQ(most_stages(megatron_lm_of_2021()), 4);
  EXPECT_EQ(most_stages(megatron_deepspeed()), 1);
}

}  // namespace parallel_space_test
}  // namespace pipewright::planner
