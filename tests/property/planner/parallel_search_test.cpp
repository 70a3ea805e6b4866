// The search with its bound against the search without: the same answer on random jobs, and a bound
// that never exceeds what it bounds.
#include "planner/estimate/parallel_search.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace pipewright::planner {
namespace parallel_search_test {

struct Job {
  Architecture model;
  FrameworkTraits framework;
  Machine machine;
  ParallelSpace space;
};

Job random_job(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](auto... values) {
    const int list[] = {values...};
    return list[random() % std::size(list)];
  };
  Job job;
  const int heads = one_of(8, 16, 32);
  job.model = gpt_architecture("gpt", 64 * heads, one_of(4, 6, 8, 12), heads, 32000,
                               one_of(512, 1024, 2048));
  job.framework = seed % 3 == 0   ? megatron_core()
                  : seed % 3 == 1 ? megatron_lm()
                                  : megatron_deepspeed();
  if (seed % 4 == 0) {
    job.model.experts = {.count = 8, .chosen = 2, .ffn = job.model.ffn / 2, .dense_blocks = 1};
  }
  if (seed % 5 == 1) {
    job.model.lora = {one_of(4, 8, 64), {"linear_qkv", "linear_proj"}};
    if (job.model.experts.count == 0) job.model.lora.target_modules.push_back("linear_fc2");
  }
  const char* devices[] = {"V100", "A100", "H100", "B200"};
  job.machine = nvlink_machine(devices[random() % 4], one_of(25, 100, 200) * 1e9);
  const bool has_8_bits = job.machine.nodes.front().device.faster_in_8_bits > 0;
  if (has_8_bits && seed % 2 == 0) job.framework = with_products(job.framework, "fp8");
  job.machine.nodes.front().device.memory_bytes /= one_of(1, 4, 16);
  job.space.devices = one_of(4, 8, 16);
  job.space.global_batch = one_of(16, 32, 48);
  if (random() % 2 == 0) job.space.zero = {0, 1};
  return job;
}

TEST(ParallelSearch, FindsWhatLookingAtEverythingFinds) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const Job job = random_job(seed);
    const auto run = [&](bool exhaustive) {
      return search_parallel(job.model, job.framework, job.machine, job.space, 3, exhaustive);
    };
    const ParallelResult quick = run(false), all = run(true);
    ASSERT_EQ(quick.configurations, all.configurations) << seed;
    ASSERT_EQ(quick.ranked.size(), all.ranked.size()) << seed;
    EXPECT_LE(quick.estimated, all.estimated) << seed;
    for (std::size_t k = 0; k < all.ranked.size(); ++k) {
      EXPECT_EQ(quick.ranked[k].estimate.step, all.ranked[k].estimate.step) << seed;
      EXPECT_EQ(describe(quick.ranked[k].setup), describe(all.ranked[k].setup)) << seed;
    }
    // The certificate: everything was either estimated or ruled out.
    for (const ParallelResult* result : {&quick, &all}) {
      std::int64_t counted = result->estimated;
      for (const auto& [reason, count] : result->pruned) counted += count;
      EXPECT_EQ(counted, result->configurations) << seed;
    }
  }
}

TEST(ParallelSearch, TheBoundNeverExceedsTheEstimate) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const Job job = random_job(seed);
    const ParallelResult all =
        search_parallel(job.model, job.framework, job.machine, job.space, 100000, true);
    for (const ParallelCandidate& candidate : all.ranked) {
      EXPECT_LE(lower_bound(job.model, job.framework, job.machine, candidate.setup),
                candidate.estimate.step)
          << seed << ": " << describe(candidate.setup);
    }
  }
}

TEST(ParallelSearch, TheFrontHoldsWhatNothingBeatsInTimeAndMemory) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const Job job = random_job(seed);
    const ParallelResult all =
        search_parallel(job.model, job.framework, job.machine, job.space, 100000, true);
    if (all.ranked.empty()) continue;
    EXPECT_EQ(all.front.front().estimate.step, all.ranked.front().estimate.step);
    for (const ParallelCandidate& one : all.front) {
      for (const ParallelCandidate& other : all.ranked) {
        EXPECT_FALSE(other.estimate.step < one.estimate.step && other.peak_bytes < one.peak_bytes);
      }
    }
    for (std::size_t k = 1; k < all.front.size(); ++k) {
      EXPECT_GT(all.front[k].estimate.step, all.front[k - 1].estimate.step);
      EXPECT_LT(all.front[k].peak_bytes, all.front[k - 1].peak_bytes);
    }
  }
}

TEST(ParallelSearch, WhatIsAskedForIsAllThatIsTried) {
  Job job = random_job(1);
  job.space.tensor = {2};
  job.space.pipeline = {2};
  job.space.recompute = {LayerRecompute::Whole};
  job.space.sequence_parallel = {true};
  const ParallelResult result =
      search_parallel(job.model, job.framework, job.machine, job.space, 1000, true);
  ASSERT_FALSE(result.ranked.empty());
  for (const ParallelCandidate& candidate : result.ranked) {
    EXPECT_EQ(candidate.setup.tensor, 2);
    EXPECT_EQ(candidate.setup.pipeline, 2);
    EXPECT_EQ(candidate.setup.devices(), job.space.devices);
    EXPECT_TRUE(candidate.setup.sequence_parallel);
    EXPECT_EQ(candidate.setup.recompute.of_all, LayerRecompute::Whole);
  }
}

/// The pipeline degrees that an open search of 96 devices looks at, each with its chunks.
std::map<int, std::set<int>> pipelines_tried(int blocks) {
  const Architecture model = gpt_architecture("gpt", 512, blocks, 16, 32000, 512);
  ParallelSpace space;
  space.devices = 96;
  space.global_batch = 96;
  space.tensor = {1};
  std::map<int, std::set<int>> tried;
  for_each_setup(model, megatron_core(), space,
                 {[&](const ParallelSetup& setup) { tried[setup.pipeline].insert(setup.chunks); },
                  [](LeftOut, const ParallelSetup&) {}});
  return tried;
}

TEST(ParallelSearch, EveryPipelineThatTheLayersReachIsTried) {
  const auto degrees_of = [](int blocks) {
    std::set<int> degrees;
    for (const auto& [pipeline, chunks] : pipelines_tried(blocks)) degrees.insert(pipeline);
    return degrees;
  };
  // All divisors of 96, whether or not they divide the blocks, up to one layer a rank.
  EXPECT_EQ(degrees_of(70), (std::set<int>{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48}));
  EXPECT_EQ(degrees_of(10), (std::set<int>{1, 2, 3, 4, 6, 8, 12}));
}

TEST(ParallelSearch, StagesOfEquallyManyBlocksOrLayersAreTried) {
  // 126 blocks and 128 layers: 8 ranks of 16 layers; 6 ranks of 21 blocks.
  const auto tried = pipelines_tried(126);
  EXPECT_EQ(tried.at(8), (std::set<int>{1, 2, 4, 8, 16}));
  EXPECT_EQ(tried.at(6), (std::set<int>{1, 2, 3, 4, 7, 8, 16, 21}));
  EXPECT_EQ(tried.at(1), (std::set<int>{1}));
}

}  // namespace parallel_search_test
}  // namespace pipewright::planner
