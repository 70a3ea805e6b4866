// A plan that the tuner made, whose stages have replicas that take turns: it ends and learns on the
// CPU, its replicas have the same weights, and the paced device takes the time that was predicted.
#include <gtest/gtest.h>

#include "core/model/transformer.hpp"
#include "exec/data/data.hpp"
#include "exec/devices/cpu/device.hpp"
#include "exec/devices/paced/device.hpp"
#include "planner/configurations/stage_replicas.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "planner/search/search.hpp"

namespace pipewright::tests {
namespace tuned_replicas_test {

constexpr int kSteps = 20;

/// A small text model on four ranks. `stage_replicas` empty: the search chooses.
Job job_of(const std::vector<std::vector<int>>& stage_replicas) {
  Job job;
  job.model.name = "transformer";
  job.model.layers =
      expand({.hidden = 16, .layers = 4, .heads = 2, .ffn = 32, .vocabulary = 256, .sequence = 16});
  job.model.sequence = 16;
  job.cluster = cluster_preset("local-cpu", 4);
  job.global_batch = 24;
  job.strategy.pp_degree = {"4"};
  job.strategy.accumulate_steps = {"12"};
  job.strategy.schedule_mode = {"1f1b-rr"};
  job.strategy.stage_replicas = stage_replicas;
  job.training.optimizer = "sgd";
  return job;
}

/// What a user has of it: the plan from its file.
Plan tuned(const Job& job, const Profile* profile) {
  planner::SearchOptions options;
  options.cores = 4;
  const planner::SearchResult result = planner::search(job, profile, options);
  if (!result.best) throw std::runtime_error("no plan");
  return read_plan(JsonCursor(to_json(*result.best), "plan.json"));
}

void expect_runs(const Plan& plan) {
  const Program program = planner::program_of_plan(plan);
  ASSERT_TRUE(program.asynchronous);
  const exec::RunResult paced =
      exec::paced::run_paced(program, plan.costs, exec::local::ClockKind::Virtual, {.steps = 1});
  ASSERT_TRUE(paced.finished());
  EXPECT_EQ(Nanoseconds(figures_of(program, paced.timeline, plan.costs).makespan_ns),
            plan.predicted.step);

  const auto data = exec::make_data(
      plan.model,
      {.samples = plan.micro_batch_size, .micro_batches = plan.micro_batches, .seed = 7},
      PIPEWRIGHT_SOURCE_DIR "/LICENSE");
  exec::cpu::Training training;
  training.model = &plan.model;
  training.stages = plan.stages;
  training.micro_batch_size = plan.micro_batch_size;
  training.micro_batches = plan.micro_batches;
  training.optimizer = exec::optimizer_spec("sgd", 0.05);
  training.data = data.get();
  const auto run = exec::cpu::run_on_cpu(program, plan.costs, training, {.steps = kSteps});
  ASSERT_TRUE(run.finished());
  ASSERT_EQ(run.steps.size(), static_cast<std::size_t>(kSteps));
  EXPECT_LT(*run.steps.back().loss, 0.9 * *run.steps.front().loss);
}

class TunedReplicas : public testing::TestWithParam<std::vector<int>> {};

TEST_P(TunedReplicas, RunAsTheStrategyAsksForThem) {
  const Plan plan = tuned(job_of({GetParam()}), nullptr);
  EXPECT_EQ(plan.schedule.parameters.at("replicas"), planner::replicas_text(GetParam()));
  EXPECT_EQ(plan.executable.at("cpu"), Executable{});
  expect_runs(plan);
}

INSTANTIATE_TEST_SUITE_P(Ranks, TunedReplicas,
                         testing::Values(std::vector{2, 1, 1}, std::vector{3, 1}, std::vector{4},
                                         std::vector{1, 2, 1}, std::vector{1, 3}, std::vector{2, 2},
                                         std::vector{1, 1, 1, 1}),
                         [](const auto& one) {
                           std::string name = "of";
                           for (const int count : one.param) name += "_" + std::to_string(count);
                           return name;
                         });

/// The first block takes as long as all others together, by a profile.
TEST(TunedReplicas, RunWhereTheSearchChoosesThem) {
  const Job job = job_of({});
  Profile profile;
  profile.model_name = job.model.name;
  profile.cluster = job.cluster;
  profile.transfer_bytes_per_second = 2e7;
  ProfileSize size;
  size.micro_batch_size = 2;
  for (std::size_t l = 0; l < job.model.layers.size(); ++l) {
    const std::int64_t time = l == 0 ? 3'000'000 : 1'000'000 / job.model.layers.size();
    size.layers.push_back({Nanoseconds(time), Nanoseconds(time), Nanoseconds(time), {}});
  }
  profile.sizes = {size};
  const Plan plan = tuned(job, &profile);
  EXPECT_EQ(plan.schedule.parameters.at("replicas"), "3,1");
  expect_runs(plan);
}

}  // namespace tuned_replicas_test
}  // namespace pipewright::tests
