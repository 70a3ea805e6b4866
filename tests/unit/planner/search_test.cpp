#include "planner/search/search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "planner/branches/branch.hpp"
#include "planner/branches/space.hpp"
#include "planner/memory/memory.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "planner/schedules/registry.hpp"

namespace pipewright::planner {
namespace search_test {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;

Job dgx_job() {
  Job job;
  job.model = model_preset("gpt-tiny");
  job.cluster = cluster_preset("dgx-a100");
  job.global_batch = 24;
  return job;
}

std::string text_of(const SearchResult& result) {
  std::string text;
  for (const Candidate& c : result.ranked) {
    text += describe(c) + " " + c.partition + " " + std::to_string(c.step.value) + " " +
            std::to_string(c.peak_bytes.value) + "\n";
  }
  for (const auto& [reason, count] : by_sentence(result.pruned))
    text += reason + " " + std::to_string(count) + "\n";
  return text + std::to_string(result.evaluated);
}

TEST(Search, ResultDoesNotDependOnThreads) {
  const Job job = dgx_job();
  SearchOptions one, many;
  one.threads = 1;
  many.threads = 7;
  const SearchResult a = search(job, nullptr, one), b = search(job, nullptr, many);
  EXPECT_EQ(text_of(a), text_of(b));
  ASSERT_TRUE(a.best && b.best);
  EXPECT_EQ(to_text(to_json(*a.best)), to_text(to_json(*b.best)));
}

TEST(Search, OneMicroBatchAtATimeTakesTheWorkOfAllRanks) {
  // Three ranks, F 2, B 3, updates of 1, 5 and 9: the last backward of rank r leaves 3 r behind it.
  const Schedule& naive = find_schedule("naive");
  ParallelSetup parallel;
  parallel.pipeline = 3;
  parallel.micro_batches = 4;
  std::vector<StagePlan> stages(3);
  std::vector<StageCosts> costs(3);
  for (int s = 0; s < 3; ++s) {
    const auto index = static_cast<std::size_t>(s);
    stages[index].rank = RankId(s);
    costs[index].f = Nanoseconds(2);
    costs[index].b = Nanoseconds(3);
    costs[index].opt = Nanoseconds(1 + 4 * s);
  }
  EXPECT_EQ(step_bound({&naive, parallel}, stages, costs), 4 * 3 * (2 + 3) - 2 * 3 + 9);
}

/// What was skipped by its bound was rightly skipped: with room for every row, the table begins
/// with the same rows.
TEST(Search, BoundNeverDropsARowOfTheTable) {
  for (const char* cluster : {"dgx-a100", "dgx-h100"}) {
    Job job = dgx_job();
    job.cluster = cluster_preset(cluster);
    SearchOptions few, all;
    few.keep = 5;
    all.keep = 100000;
    const SearchResult a = search(job, nullptr, few), b = search(job, nullptr, all);
    ASSERT_EQ(a.ranked.size(), 5u);
    ASSERT_GT(b.ranked.size(), 5u);
    EXPECT_LT(a.evaluated, b.evaluated);
    for (std::size_t i = 0; i < a.ranked.size(); ++i) {
      EXPECT_EQ(describe(a.ranked[i]), describe(b.ranked[i]));
      EXPECT_EQ(a.ranked[i].step, b.ranked[i].step);
    }
  }
}

TEST(Search, BestPlanIsCompleteAndNeverWorseThanTheBaseline) {
  for (const int batch : {1, 7, 24, 64}) {
    Job job = dgx_job();
    job.global_batch = batch;
    const SearchResult result = search(job);
    ASSERT_TRUE(result.best);
    const Plan& plan = *result.best;
    ASSERT_FALSE(result.baselines.empty());
    for (const Candidate& baseline : result.baselines) {
      EXPECT_EQ(baseline.schedule, "naive");
      EXPECT_LE(plan.predicted.step, baseline.step);
    }
    EXPECT_GT(plan.predicted.step, Nanoseconds(0));
    EXPECT_EQ(plan.replicas() * plan.micro_batches * plan.micro_batch_size, batch);
    EXPECT_EQ(plan.executable.at("cpu"), Executable{});
    EXPECT_EQ(plan.stages.back().end_layer, static_cast<int>(plan.model.layers.size()));
    EXPECT_EQ(plan.predicted.peak_activations.size(), static_cast<std::size_t>(plan.all_ranks()));
    EXPECT_FALSE(plan.tuner.reasons.empty());
    EXPECT_GT(plan.tuner.baseline_step, Nanoseconds(0));
    // The prediction is the simulator's, not the search's: the same again from the plan alone.
    Plan again = plan;
    again.predicted = {};
    EXPECT_EQ(fill_prediction(again).verdict, Verdict::Ok);
    EXPECT_EQ(again.predicted.step, plan.predicted.step);
    EXPECT_EQ(again.predicted.peak_bytes, plan.predicted.peak_bytes);
  }
}

/// What the training adds to a step is part of what is compared.
TEST(Search, PlansWithClippingRecomputeAndShardedReplicasArePredictedAsTheyWereSearched) {
  Job job = dgx_job();
  job.training.clip_grad_norm = 1;
  job.training.recompute.kind = RecomputeSpec::Kind::Full;
  job.strategy.sharding_degree = 2;
  job.strategy.pp_degree = {"2"};
  const SearchResult result = search(job);
  ASSERT_TRUE(result.best);
  EXPECT_EQ(result.best->predicted.step, result.ranked.front().step);
  EXPECT_EQ(result.best->sharding_stage, 1);
  job.training = {};
  EXPECT_LT(search(job).ranked.front().step, result.ranked.front().step);
}

TEST(Search, RowsAreRanked) {
  const SearchResult result = search(dgx_job());
  ASSERT_GT(result.ranked.size(), 1u);
  for (std::size_t i = 1; i < result.ranked.size(); ++i) {
    EXPECT_LE(result.ranked[i - 1].step, result.ranked[i].step);
  }
}

TEST(Search, FieldsThatTheUserFixedStay) {
  Job job = dgx_job();
  job.auto_mode = AutoMode::Semi;
  job.strategy.pp_degree = {"2"};
  job.strategy.accumulate_steps = {"12"};
  job.strategy.schedule_mode = {"FThenB"};
  const SearchResult result = search(job);
  ASSERT_TRUE(result.best);
  EXPECT_EQ(result.best->ranks(), 2);
  EXPECT_EQ(result.best->micro_batches, 12);
  EXPECT_EQ(result.best->schedule.name, "gpipe");
  EXPECT_THAT(result.best->tuner.reasons, Contains(HasSubstr("pp_degree stays 2")));
  for (const Candidate& c : result.ranked) EXPECT_EQ(c.schedule, "gpipe");

  job.strategy.schedule_mode = {"VPP"};
  job.strategy.vpp_degree = {"3"};
  const SearchResult chunks = search(job);
  ASSERT_TRUE(chunks.best);
  EXPECT_EQ(chunks.best->schedule.name, "interleaved");
  EXPECT_EQ(chunks.best->schedule.chunks, 3);
  EXPECT_EQ(chunks.best->stages.size(), 6u);
}

TEST(Search, ReplicasOfThePipelineShareTheBatch) {
  Job job = dgx_job();
  job.global_batch = 24;
  job.strategy.dp_degree = {"2"};
  job.strategy.pp_degree = {"2"};
  job.strategy.micro_batch_size = {"3"};
  const SearchResult result = search(job);
  ASSERT_TRUE(result.best);
  const Plan& plan = *result.best;
  EXPECT_EQ(plan.mesh.shape, (std::vector<int>{2, 2}));
  EXPECT_EQ(plan.mesh.dim_names, (std::vector<std::string>{"dp", "pp"}));
  EXPECT_EQ(plan.micro_batches, 4);
  EXPECT_EQ(plan.predicted.peak_activations.size(), 4u);
  EXPECT_EQ(program_of_plan(plan).ranks(), 4);
  EXPECT_EQ(program_of_plan(plan).micro_batches, 8);
  EXPECT_THAT(result.ranked.front().parallel.data, 2);
  for (const Candidate& c : result.ranked)
    EXPECT_EQ(c.parallel.data * c.parallel.micro_batches * 3, 24);
  const Plan again = read_plan(JsonCursor(to_json(plan), "plan.json"));
  EXPECT_EQ(again.replicas(), 2);
  EXPECT_EQ(again.predicted.step, plan.predicted.step);
}

TEST(Search, ReplicasThatDoNotFitAreCountedByReason) {
  Job job = dgx_job();
  job.global_batch = 24;
  job.strategy.dp_degree = {"5", "4096"};
  const SearchResult result = search(job);
  EXPECT_FALSE(result.best);
  EXPECT_EQ(by_sentence(result.pruned).at("dp_degree does not divide the global batch"), 2);
}

TEST(Search, SeveralValuesAreTried) {
  Job job = dgx_job();
  job.strategy.pp_degree = {"2", "3"};
  for (const Candidate& c : search(job).ranked)
    EXPECT_TRUE(c.parallel.pipeline == 2 || c.parallel.pipeline == 3);
}

TEST(Search, NothingFitsIsAResultWithReasons) {
  Job job = dgx_job();
  job.strategy.memory_limit = Bytes(1000);
  const SearchResult result = search(job);
  EXPECT_FALSE(result.best);
  EXPECT_THAT(by_sentence(result.pruned), Contains(Key("over the memory limit")));
  job.strategy.memory_limit = Bytes(0);
  job.strategy.pp_degree = {"64"};
  const SearchResult large = search(job);
  EXPECT_FALSE(large.best);
  EXPECT_EQ(by_sentence(large.pruned).at("more ranks than devices"), 1);
}

/// A limit between what one rank needs and what is possible leaves only plans that keep to it.
TEST(Search, MemoryLimitHolds) {
  Job job = dgx_job();
  const SearchResult open = search(job);
  const std::int64_t whole =
      state_of(job.model, {0, static_cast<int>(job.model.layers.size()), RankId(0)}, "adamw")
          .sum()
          .value;
  job.strategy.memory_limit = Bytes(whole * 3 / 4);
  const SearchResult limited = search(job);
  ASSERT_TRUE(limited.best);
  EXPECT_GT(limited.best->ranks(), 1);
  for (const Candidate& c : limited.ranked) EXPECT_LE(c.peak_bytes, job.strategy.memory_limit);
  for (const Bytes peak : limited.best->predicted.peak_bytes) {
    EXPECT_LE(peak, job.strategy.memory_limit);
  }
  EXPECT_GE(limited.best->predicted.step, open.best->predicted.step);
}

TEST(Search, SharedMachineTriesNoMoreRanksThanCores) {
  Job job = dgx_job();
  job.cluster = cluster_preset("local-cpu", 8);
  SearchOptions options;
  options.cores = 2;
  for (const Candidate& c : search(job, nullptr, options).ranked) EXPECT_LE(c.parallel.pipeline, 2);
  job.strategy.pp_degree = {"4"};
  const SearchResult asked = search(job, nullptr, options);
  ASSERT_TRUE(asked.best);
  EXPECT_EQ(asked.best->ranks(), 4);
  // Four ranks on two cores: twice the time, so one rank is not beaten by a pretence of four cores.
  EXPECT_THAT(asked.best->tuner.reasons, Contains(HasSubstr("2.00 times as long")));
}

TEST(Search, BadValuesAreNamed) {
  Job job = dgx_job();
  job.strategy.pp_degree = {"two"};
  EXPECT_THROW(search(job), InputError);
  job.strategy.pp_degree = {};
  job.strategy.schedule_mode = {"gpip"};
  EXPECT_THROW(search(job), InputError);
  job.strategy.schedule_mode = {};
  job.global_batch = 0;
  EXPECT_THROW(search(job), InputError);
}

TEST(ProgramOfPlan, RefusesAnOrderThatDoesNotFit) {
  Plan plan = *search(dgx_job()).best;
  plan.schedule.order = make_order("gpipe", {plan.ranks() + 1, plan.micro_batches, 1, {}});
  EXPECT_THROW(program_of_plan(plan), InputError);
  plan.schedule.order = make_order("gpipe", {plan.ranks(), plan.micro_batches + 1, 1, {}});
  EXPECT_THROW(program_of_plan(plan), InputError);
}

/// An order that hangs under the plan's policy: the report says so, the prediction stays.
TEST(ProgramOfPlan, DeadlockIsAReport) {
  Plan plan;
  plan.model = model_preset("gpt-tiny");
  plan.mesh = Mesh::pipeline(2);
  plan.micro_batches = 4;
  for (int s = 0; s < 4; ++s) plan.stages.push_back({s, s + 1, RankId(s % 2)});
  plan.schedule.name = "paddle-vpp";
  plan.schedule.chunks = 2;
  plan.schedule.parameters = {{"jobs", "fused"}};
  plan.policy = comm_policy_preset("paddle-vpp");
  plan.costs = CostTable::uniform(4, {});
  plan.predicted.step = Nanoseconds(77);
  EXPECT_EQ(fill_prediction(plan).verdict, Verdict::Deadlock);
  EXPECT_EQ(plan.predicted.step, Nanoseconds(77));
}

}  // namespace search_test
}  // namespace pipewright::planner
