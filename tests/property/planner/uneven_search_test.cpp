// The tuner where devices are slow or samples take longer than others, on random jobs that are
// small enough to simulate everything: the search with its bounds against the search without, each
// bound against what it bounds, and plans that tell what every action takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/costs/action_times.hpp"
#include "core/model/architecture_model.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "planner/search/job_costs.hpp"
#include "planner/search/plan_of_candidate.hpp"
#include "planner/search/search.hpp"
#include "tests/support/draw.hpp"
#include "tests/support/search_checks.hpp"

namespace pipewright::planner {
namespace uneven_search_test {

using test::Draw;
using test::searched;

void make_uneven(Job& job, Draw& random) {
  const int what = random.below(3);
  for (int k = what == 1 ? 0 : 1 + random.below(3); k > 0; --k) {
    const SlowPlace place{.is_node = false,
                          .number = random.below(job.cluster.devices()),
                          .factor = 1 + random.below(150) / 100.0};
    if (job.cluster.slowness(place.number) == 1) job.cluster.slow.push_back(place);
  }
  for (int k = what == 0 ? 0 : job.global_batch; k > 0; --k)
    job.sample_scales.push_back(random.one_of(25, 50, 100, 100, 300) / 100.0);
}

/// A transformer on GPUs.
Job estimated_job(std::uint32_t seed) {
  Draw random(seed);
  Job job;
  const int heads = random.one_of(8, 16);
  job.architecture = gpt_architecture("gpt", 64 * heads, random.one_of(4, 7, 10), heads, 32000,
                                      random.one_of(512, 1024));
  job.model = model_of(*job.architecture);
  job.cluster = cluster_preset("dgx-a100", 8);
  if (random.coin()) {
    job.cluster.nodes = 4;
    job.cluster.devices_per_node = 2;
  }
  job.global_batch = random.one_of(8, 16);
  Strategy& strategy = job.strategy;
  if (random.coin()) strategy.mp_degree = {"1", "2"};
  strategy.recompute = {random.coin() ? "none" : "by_stage"};
  strategy.sharding_stage = {random.coin() ? "0" : "1"};
  strategy.micro_batch_size = {"1", "2"};
  const char* names[] = {"1f1b",  "interleaved", "zbv",   "zb-h1", "gpipe",
                         "naive", "zb-1p",       "v-min", "zb-h2", "dualpipev"};
  for (int k = 0; k < 3; ++k) strategy.schedule_mode.emplace_back(names[random.below(10)]);
  make_uneven(job, random);
  return job;
}

/// A chain of layers, by operation counts.
Job layered_job(std::uint32_t seed) {
  Draw random(seed);
  Job job;
  job.model = model_preset("gpt-tiny");
  job.cluster = cluster_preset("dgx-a100", 8);
  if (random.coin()) {
    job.cluster.nodes = 4;
    job.cluster.devices_per_node = 2;
  }
  job.global_batch = random.one_of(8, 12);
  if (random.coin()) job.strategy.micro_batch_size = {"1"};
  const char* names[] = {"1f1b", "interleaved", "zb-h1", "gpipe", "naive", "chimera"};
  for (int k = 0; k < 3; ++k) job.strategy.schedule_mode.emplace_back(names[random.below(6)]);
  make_uneven(job, random);
  return job;
}

Job random_job(std::uint32_t seed) {
  return seed % 3 == 0 ? layered_job(seed) : estimated_job(seed);
}

TEST(UnevenSearch, FindsWhatSimulatingEverythingFindsAndNoBoundExceedsWhatItBounds) {
  int rows = 0;
  std::int64_t spared = 0;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const Job job = random_job(seed);
    const SearchResult all = searched(job, 100000, true), few = searched(job, 3, true);
    const SearchResult quick = searched(job, 3, false);
    test::expect_same_rows(quick, few);
    test::expect_bounds_hold(*costs_of_job(job, nullptr, 0), all);
    rows += static_cast<int>(all.ranked.size());
    spared += few.evaluated - quick.evaluated;
  }
  EXPECT_GT(rows, 1000);
  EXPECT_GT(spared, 500);  // the bounds still rule out something
}

/// The rows of a search, each made a plan: its file has what every action takes, and the simulation
/// of all its replicas takes the step of the row, which few replicas were simulated for.
TEST(UnevenSearch, EachRowsPlanTakesItsStepAndTellsWhatItsActionsTake) {
  int with_times = 0, of_replicas = 0, with_parts = 0;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const Job job = random_job(seed);
    const auto costs = costs_of_job(job, nullptr, 0);
    const SearchResult all = searched(job, 12, false);
    for (const Candidate& row : all.ranked) {
      SCOPED_TRACE(std::to_string(seed) + " " + describe(row));
      SearchResult one = all;
      one.ranked = {row};
      one.best = plan_of_candidate(job, *costs, one, costs->memory_limit());
      const Plan plan = test::expect_survives_its_file(one);
      if (plan.costs.actions == nullptr) continue;
      ++with_times;
      of_replicas += plan.costs.actions->shape().replicas > 1 ? 1 : 0;
      with_parts += plan.parts.empty() ? 0 : 1;
    }
  }
  EXPECT_GT(with_times, 200);
  EXPECT_GT(of_replicas, 50);
  EXPECT_GT(with_parts, 5);
}

TEST(UnevenSearch, ThreadsChangeNothing) {
  for (std::uint32_t seed = 0; seed < 6; ++seed)
    test::expect_same_search(searched(random_job(seed), 5, false, 1),
                             searched(random_job(seed), 5, false, 5));
}

Job two_ranks(double factor) {
  Job job;
  job.model = model_preset("gpt-tiny");
  job.cluster = cluster_preset("dgx-a100", 8);
  job.global_batch = 8;
  job.strategy.pp_degree = {"2"};
  job.strategy.dp_degree = {"1"};
  job.strategy.accumulate_steps = {"8"};
  job.strategy.schedule_mode = {"1f1b"};
  if (factor > 1) job.cluster.slow = {{.is_node = false, .number = 1, .factor = factor}};
  return job;
}

/// The slow rank gets fewer layers, and the plan's rows say what its actions take.
TEST(UnevenSearch, ASlowDeviceGetsFewerLayers) {
  const Plan alike = *search(two_ranks(1)).best, uneven = *search(two_ranks(3)).best;
  const auto layers = [](const Plan& plan, int stage) {
    const StagePlan& one = plan.stages[static_cast<std::size_t>(stage)];
    return one.end_layer - one.first_layer;
  };
  EXPECT_EQ(alike.costs.actions, nullptr);
  EXPECT_LT(layers(uneven, 1), layers(alike, 1));
  ASSERT_NE(uneven.costs.actions, nullptr);
  EXPECT_EQ(uneven.costs.actions->rows().size(), 16U);  // F and B of rank 1's eight micro-batches
  for (const ActionTime& row : uneven.costs.actions->rows()) {
    EXPECT_EQ(row.rank, RankId(1));
    EXPECT_EQ(row.time, uneven.costs.stage_time(row.action.action.kind, StageId(1)) * 3);
  }
  EXPECT_THAT(uneven.tuner.reasons, testing::Contains(testing::HasSubstr("device 1 3.00 times")));
}

/// Two replicas; the first has the long samples, and the step is its.
TEST(UnevenSearch, TheReplicaWithTheLongSamplesEndsTheStep) {
  Job job = two_ranks(1);
  job.strategy.dp_degree = {"2"};
  job.strategy.accumulate_steps = {"4"};
  const Nanoseconds alike = search(job).ranked.front().step;
  job.sample_scales = {1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(search(job).ranked.front().step, alike);
  job.sample_scales = {2, 2, 2, 2, 1, 1, 1, 1};
  const Nanoseconds twice = search(job).ranked.front().step;
  EXPECT_GT(twice, alike);
  job.sample_scales = {1, 1, 1, 1, 2, 2, 2, 2};
  EXPECT_EQ(search(job).ranked.front().step, twice);
}

}  // namespace uneven_search_test
}  // namespace pipewright::planner
