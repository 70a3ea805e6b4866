// Own orders as plans: an order that a schedule made gives the plan that tune makes of that
// schedule; other orders and placements give plans that say what sim says of them.
#include "planner/search/plan_of_order.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/model/architecture_model.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "planner/schedules/registry.hpp"
#include "planner/search/prospects.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner {
namespace plan_of_order_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Job layered_job() {
  Job job;
  job.model = model_preset("gpt-tiny");
  job.cluster = cluster_preset("local-cpu");
  job.cluster.nodes = 1;
  job.cluster.devices_per_node = 8;
  job.global_batch = 16;
  return job;
}

Job estimated_job() {
  const Json document = {{"schema", "pipewright.job/1"},
                         {"model", "megatron-18b"},
                         {"cluster", "dgx-a100"},
                         {"global_batch", 16}};
  return read_job(JsonCursor(document, "job"));
}

Plan plan_of(const Job& job, const Order& order, const OrderSetup& setup) {
  auto made = plan_of_order(job, nullptr, 4, order, setup);
  return std::get<PlanOfOrder>(made).plan;
}

Order order_of(const char* schedule, int ranks, int micro_batches, int chunks = 1) {
  ScheduleRequest request;
  request.ranks = ranks;
  request.micro_batches = micro_batches;
  request.chunks = chunks;
  return make_order(schedule, request);
}

std::string message_of(const Job& job, const Order& order, const OrderSetup& setup = {}) {
  try {
    plan_of_order(job, nullptr, 4, order, setup);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(PlanOfOrder, OfAScheduleIsTunesPlanOfIt) {
  struct Case {
    Job job;
    const char* schedule;
    int ranks, chunks;
    std::string configuration;
  };
  const std::vector<Case> cases{
      {layered_job(), "gpipe", 2, 1, ""},
      {layered_job(), "1f1b", 4, 1, "micro_batch_size=2"},
      {layered_job(), "zb-h1", 2, 1, "dp=2"},
      {layered_job(), "interleaved", 2, 2, "dp=2,recompute=full"},
      {layered_job(), "zbv", 2, 2, "partition=even"},
      {layered_job(), "1f1b", 2, 1, "tp=2,zero=1,dp=2"},
      {estimated_job(), "1f1b", 2, 1, "tp=2,dp=2"},
      {estimated_job(), "interleaved", 2, 2, "tp=4,dp=1,recompute=selective"},
  };
  for (const auto& [job, schedule, ranks, chunks, configuration] : cases) {
    Job open = job;  // to all that the configurations name
    if (!estimated_architecture(job)) {
      open.strategy.mp_degree = {"1", "2"};
      open.strategy.sharding_stage = {"0", "1"};
      open.strategy.recompute = {"none", "full"};
    }
    const std::string more = configuration.empty() ? "" : "," + configuration;
    const std::string text = std::string("schedule=") + schedule + ",pp=" + std::to_string(ranks) +
                             ",vpp=" + std::to_string(chunks) + more;
    SCOPED_TRACE(job.cluster.name + " " + text);
    const Plan tuned = plan_of_configuration(open, nullptr, 4, text, {});
    const Plan own =
        plan_of(job, order_of(schedule, ranks, tuned.micro_batches, chunks), {configuration, {}});
    EXPECT_EQ(own.schedule.name, "custom");
    ASSERT_TRUE(own.schedule.order);
    const Json a = to_json(tuned), b = to_json(own);
    for (const char* key : {"mesh", "micro_batches", "micro_batch_size", "stages", "costs",
                            "predicted", "executable", "training"})
      EXPECT_EQ(a.at(key), b.at(key)) << key;
    // A plan is read as it was written.
    EXPECT_EQ(to_json(read_plan(JsonCursor(b, "plan"))), b);
  }
}

TEST(PlanOfOrder, TakesAnyPlacementAndCut) {
  Order order = order_of("1f1b", 3, 4);
  std::reverse(order.ranks.begin(), order.ranks.end());
  order.placement = Placement::explicit_stages({RankId(2), RankId(1), RankId(0)}, 3);
  Job job = layered_job();
  job.global_batch = 4;
  const int layers = static_cast<int>(job.model.layers.size());
  const Plan plan = plan_of(job, order, {"", {1, layers - 2, 1}});
  ASSERT_THAT(plan.stages, SizeIs(3));
  EXPECT_EQ(plan.stages[0].rank, RankId(2));
  EXPECT_EQ(plan.stages[1].first_layer, 1);
  EXPECT_EQ(plan.stages[2].end_layer, layers);
  const sim::Result result = sim::simulate(program_of_plan(plan), plan.costs);
  ASSERT_TRUE(result.finished);
  EXPECT_GT(plan.predicted.step.value, 0);
  EXPECT_THAT(plan.tuner.reasons.front(), HasSubstr("An order of your own: "));
}

TEST(PlanOfOrder, OfAnOrderThatHangsIsAVerdict) {
  Job job = layered_job();
  job.global_batch = 2;
  Order order = order_of("1f1b", 2, 2);
  // The last rank wants to go back before it has gone forward.
  std::swap(order.ranks[1][0], order.ranks[1][1]);
  const auto made = plan_of_order(job, nullptr, 4, order, {});
  const auto* stuck = std::get_if<StuckOrder>(&made);
  ASSERT_NE(stuck, nullptr);
  EXPECT_NE(stuck->report.verdict, Verdict::Ok);
}

TEST(PlanOfOrder, SaysWhichRanksHoldTooMuch) {
  Job job = layered_job();
  job.global_batch = 4;
  job.strategy.memory_limit = Bytes(1 << 20);
  const auto made = plan_of_order(job, nullptr, 4, order_of("gpipe", 2, 4), {});
  EXPECT_THAT(std::get<PlanOfOrder>(made).over_memory, SizeIs(2));
  job.strategy.memory_limit = {};
  const auto free = plan_of_order(job, nullptr, 4, order_of("gpipe", 2, 4), {});
  EXPECT_THAT(std::get<PlanOfOrder>(free).over_memory, IsEmpty());
}

TEST(PlanOfOrder, MakesUpTheBatch) {
  EXPECT_EQ(global_batch_of(order_of("1f1b", 2, 3), layered_job(), {"dp=2,micro_batch_size=4", {}}),
            24);
}

TEST(PlanOfOrder, RefusesInASentence) {
  Job job = layered_job();
  job.global_batch = 4;
  const Order order = order_of("1f1b", 2, 4);
  EXPECT_THAT(message_of(job, order, {"pp=2", {}}), HasSubstr("pp follows from the order"));
  EXPECT_THAT(message_of(job, order, {"dp=2", {}}),
              HasSubstr("are 8 samples, and the global batch"));
  EXPECT_THAT(message_of(job, order, {"dp=64", {}}), HasSubstr("It needs 128 devices"));
  EXPECT_THAT(message_of(job, order, {"", {1, 2, 3}}),
              HasSubstr("for 3 stages, and the order has 2"));
  EXPECT_THAT(message_of(job, order, {"", {1, 2}}), HasSubstr("add up to 3, and the model has"));
  EXPECT_THAT(message_of(job, order, {"partition=even", {1, 2}}), HasSubstr("leave one out"));
  Order with_fragment = order;
  with_fragment.fragment = true;
  EXPECT_THAT(message_of(job, with_fragment), HasSubstr("a part of a log"));
  job.global_batch = 4;
  EXPECT_THAT(message_of(job, order_of("dualpipe", 4, 8)), HasSubstr("several ranks compute"));
}

}  // namespace plan_of_order_test
}  // namespace pipewright::planner
