// Rows of the tuner that come from a step's steady state: every figure is that of the whole step,
// lowered and simulated, on random jobs with many micro-batches.
#include <gtest/gtest.h>

#include "core/model/architecture_model.hpp"
#include "planner/branches/evaluation.hpp"
#include "planner/configurations/policy.hpp"
#include "planner/plans/long_step.hpp"
#include "planner/search/job_costs.hpp"
#include "planner/search/search.hpp"
#include "tests/support/draw.hpp"
#include "tests/support/search_checks.hpp"

namespace pipewright::planner {
namespace steady_search_test {

using test::Draw;

Job random_job(std::uint32_t seed) {
  Draw draw(seed);
  Job job;
  job.cluster = cluster_preset("dgx-h100", 8);
  if (draw.below(4) == 0) {  // by layers; of a shared port's messages no steady state is looked for
    job.model = model_preset("resnet50");
    job.cluster.inside.sharing = draw.one_of(Sharing::None, Sharing::Fair);
    job.strategy.dp_degree = {"1", "2"};
  } else {
    const int heads = draw.one_of(8, 16);
    Architecture model =
        gpt_architecture("gpt", 64 * heads, draw.one_of(8, 9, 14), heads, 32000, 512);
    job.architecture = model;
    job.model = model_of(model);
    job.strategy.mp_degree = {draw.one_of("1", "2")};
  }
  job.global_batch = draw.one_of(96, 128, 200);
  job.training.clip_grad_norm = draw.below(5) == 0 ? 1 : 0;
  Strategy& strategy = job.strategy;
  strategy.pp_degree = {draw.one_of("2", "3", "4")};
  strategy.micro_batch_size = {"1"};
  if (draw.coin()) strategy.recompute = {draw.one_of("none", "full", "by_stage")};
  for (int k = 0; k < 3; ++k) {
    strategy.schedule_mode.emplace_back(draw.one_of("1f1b", "interleaved", "zb-h1", "zb-h2", "zbv",
                                                    "dualpipev", "grouped-interleaved",
                                                    "interleaved-zb", "gpipe"));
  }
  if (draw.coin()) job.cluster.device.memory = Bytes(job.cluster.device.memory.value / 40);
  return job;
}

TEST(SteadySearch, RowsAreThoseOfTheWholeStep) {
  int steady = 0, rows = 0;
  for (std::uint32_t seed = 0; seed < 120; ++seed) {
    const Job job = random_job(seed);
    const auto costs = costs_of_job(job, nullptr, 0);
    const Bytes limit = costs->memory_limit();
    for (const Candidate& row : test::searched(job, 8, true).ranked) {
      SCOPED_TRACE(std::to_string(seed) + " " + describe(row));
      const Configuration configuration{&find_schedule(row.schedule), row.parallel,
                                        row.partition == "even", row.partition == "by-rank"};
      const OrderCosts by = order_costs(*costs, configuration, row.stages, limit);
      const ScheduleRequest request = request_for(row.parallel, row.stages, by.table, by.limits);
      const Evaluation whole = evaluate_order(job, *costs, configuration, row.stages,
                                              configuration.schedule->make(request), by);
      ASSERT_FALSE(whole.pruned);
      EXPECT_EQ(row.step, whole.candidate.step);
      EXPECT_EQ(row.bubble_ratio, whole.candidate.bubble_ratio);
      EXPECT_EQ(row.peak_activations, whole.candidate.peak_activations);
      EXPECT_EQ(row.peak_bytes, whole.candidate.peak_bytes);
      EXPECT_EQ(row.fullest_rank, whole.candidate.fullest_rank);
      EXPECT_EQ(row.state_bytes, whole.candidate.state_bytes);
      ++rows;
      if (costs->simulated_replicas(row.parallel) > 1) continue;
      steady += long_step(*configuration.schedule, request, by.table,
                          policy_for(job, *configuration.schedule), {})
                        .step
                    ? 1
                    : 0;
    }
  }
  EXPECT_GT(steady, 100);
  EXPECT_GT(rows - steady, 50);
}

}  // namespace steady_search_test
}  // namespace pipewright::planner
