// Synthesis for a plan: the stages stay, the order may change, and the plan's own policy decides.
#include "planner/synthesis/plan_synthesis.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/json.hpp"
#include "core/costs/action_times.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "planner/search/search.hpp"

namespace pipewright::planner {
namespace plan_synthesis_test {

Job job_for(const char* schedule) {
  Job job;
  job.model = model_preset("gpt-tiny");
  job.cluster = cluster_preset("dgx-a100");
  job.global_batch = 16;
  job.strategy.schedule_mode = {schedule};
  job.strategy.pp_degree = {"4"};
  job.strategy.accumulate_steps = {"8"};
  return job;
}

SynthesisRequest brief() {
  SynthesisRequest settings;
  settings.budget_ns = 50'000'000;
  return settings;
}

/// Naive lets one rank work at a time: there is a better order for the same stages.
TEST(PlanSynthesis, ABetterOrderGoesIntoThePlanAndComesBackFromItsFile) {
  const Plan plan = *search(job_for("naive")).best;
  const PlanSynthesis found = synthesise_for_plan(plan, {plan.cluster.device.memory}, brief());
  ASSERT_TRUE(found.plan) << found.why;
  EXPECT_LT(found.plan->predicted.step, plan.predicted.step);
  EXPECT_EQ(found.plan->stages.size(), plan.stages.size());
  const Json document = to_json(*found.plan);
  const Plan again = read_plan(JsonCursor(document, "plan.json"));
  EXPECT_EQ(order_of_plan(again).ranks, found.plan->schedule.order->ranks);
  EXPECT_EQ(again.predicted.step, found.plan->predicted.step);
}

TEST(PlanSynthesis, ReplicasAreLeftAsTheyAre) {
  const Plan plan = *search(job_for("chimera")).best;
  const PlanSynthesis found = synthesise_for_plan(plan, {}, brief());
  EXPECT_FALSE(found.plan);
  EXPECT_THAT(found.why, testing::HasSubstr("replicas"));
}

TEST(PlanSynthesis, ALimitThatNothingKeepsToIsSaidWithTheLeastThatWorks) {
  const Plan plan = *search(job_for("1f1b")).best;
  const PlanSynthesis found = synthesise_for_plan(plan, {Bytes(1)}, brief());
  EXPECT_FALSE(found.plan);
  EXPECT_THAT(found.why, testing::HasSubstr("the least limit"));
}

/// The plan's 1F1B names B's; the order that is found keeps to them, and its plan is one that can
/// be read.
TEST(PlanSynthesis, TimesOfSingleActionsAreSearchedWith) {
  Plan plan = *search(job_for("1f1b")).best;
  std::vector<ActionTime> rows;
  for (int s = 0; s < static_cast<int>(plan.stages.size()); ++s) {
    for (const ActionKind kind : {ActionKind::F, ActionKind::B}) {
      const Action action{.kind = kind, .stage = StageId(s), .micro_batch = MicroBatchId(0)};
      rows.push_back({.replica = 0,
                      .rank = plan.stages[static_cast<std::size_t>(s)].rank,
                      .action = {action, std::nullopt},
                      .time = plan.costs.stage_time(kind, StageId(s)) * 6});
    }
  }
  plan.costs.actions = std::make_shared<ActionTimes>(rows, plan.shape());
  ASSERT_EQ(fill_prediction(plan).verdict, Verdict::Ok);
  const PlanSynthesis found = synthesise_for_plan(plan, {}, brief());
  ASSERT_TRUE(found.plan) << found.why;
  EXPECT_LT(found.plan->predicted.step, plan.predicted.step);
  EXPECT_GE(found.plan->predicted.step.value, found.result.lower_bound_ns);
  const Json document = to_json(*found.plan);
  const Plan again = read_plan(JsonCursor(document, "plan.json"));
  EXPECT_EQ(order_of_plan(again).ranks, found.plan->schedule.order->ranks);
  EXPECT_EQ(again.costs.actions->rows().size(), rows.size());
}

}  // namespace plan_synthesis_test
}  // namespace pipewright::planner
