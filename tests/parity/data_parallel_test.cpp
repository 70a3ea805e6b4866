// Data parallel beside pipeline: replicas of a whole pipeline in one Program train on parts of one
// batch and give the gradients of a serial run of all of it.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/order_problems.hpp"
#include "exec/cpu/device.hpp"
#include "exec/paced/device.hpp"
#include "planner/data_parallel.hpp"
#include "sim/engine.hpp"
#include "tests/parity/training_setting.hpp"
#include "tests/support/update_orders.hpp"

namespace pipewright::tests {
namespace {

using exec::RunResult;
using exec::local::ClockKind;
using planner::replicate;
using planner::Schedule;

std::vector<std::string> texts(const std::vector<Cell>& cells) {
  std::vector<std::string> list;
  for (const Cell& cell : cells) list.push_back(to_string(cell));
  return list;
}

TEST(DataParallel, AReplicaDoesWithItsMicroBatchesWhatThePipelineDoesWithIts) {
  const Order one = planner::make_order("1f1b", {2, 2, 1, {}});
  const Order all = replicate(one, 2);
  ASSERT_EQ(all.rank_count(), 4);
  EXPECT_EQ(all.micro_batches, 4);
  EXPECT_EQ(texts(all.ranks[0]), texts(one.ranks[0]));
  EXPECT_EQ(texts(all.ranks[2]), (std::vector<std::string>{"0F2", "0F3", "0B2", "0B3"}));
  EXPECT_EQ(texts(all.ranks[3]), (std::vector<std::string>{"1F2", "1B2", "1F3", "1B3"}));
  EXPECT_EQ(all.placement.rank_of(StageId(1), MicroBatchId(1)), RankId(1));
  EXPECT_EQ(all.placement.rank_of(StageId(1), MicroBatchId(2)), RankId(3));
  EXPECT_TRUE(problems_of(all).empty());
}

TEST(DataParallel, OneReplicaIsThePipelineItself) {
  const Order one = planner::make_order("1f1b", {4, 8, 1, {}});
  EXPECT_EQ(replicate(one, 1).ranks, one.ranks);
}

TEST(DataParallel, AnAsynchronousOrderIsRefused) {
  EXPECT_THROW(replicate(test::pipedream_order(2, 4), 2), InputError);
}

int micro_batches_for(const Schedule& schedule, int ranks) {
  for (const int m : {2 * ranks, ranks, 4 * ranks}) {
    if (!planner::refusal_of(schedule, {ranks, m, schedule.default_chunks, {}})) return m;
  }
  return 0;
}

class EverySynchronousSchedule : public testing::TestWithParam<const Schedule*> {
 protected:
  static Program program_of(const Schedule& schedule, int replicas, int ranks) {
    const int m = micro_batches_for(schedule, ranks);
    const Order one = planner::make_order(schedule.name, {ranks, m, schedule.default_chunks, {}});
    const char* policy = schedule.policy.empty() ? "torch" : schedule.policy.data();
    return lower(replicate(one, replicas), comm_policy_preset(policy), {.optimizer = true});
  }
};

TEST_P(EverySynchronousSchedule, GivesTheSerialRunsGradientsWithTwoReplicasOfTwoRanks) {
  if (GetParam()->name == "paddle-vpp") GTEST_SKIP() << "hangs on two ranks, with or without dp";
  const Program program = program_of(*GetParam(), 2, 2);
  Setting setting(program);
  setting.training.verified_steps = 3;
  const RunResult run =
      exec::cpu::run_on_cpu(program, costs_of(program, 1000), setting.training, {.steps = 3});
  ASSERT_TRUE(run.finished());
  ASSERT_TRUE(run.verify.has_value());
  EXPECT_LE(run.verify->gradients.norm_rel, 1e-6) << run.verify->gradients.worst;
}

TEST_P(EverySynchronousSchedule, PacedTimesOfThreeReplicasAreTheSimulators) {
  const Program program = program_of(*GetParam(), 3, 4);
  const CostTable costs = costs_of(program, 1000);
  const sim::Result predicted = sim::simulate(program, costs);
  ASSERT_TRUE(predicted.finished);
  const RunResult run = exec::paced::run_paced(program, costs, ClockKind::Virtual, {});
  ASSERT_TRUE(run.finished());
  EXPECT_EQ(run.timeline.start, predicted.timeline.start);
  EXPECT_EQ(run.timeline.end, predicted.timeline.end);
}

std::vector<const Schedule*> synchronous_schedules() {
  std::vector<const Schedule*> all;
  for (const Schedule& schedule : planner::schedules()) {
    if (!schedule.asynchronous) all.push_back(&schedule);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Registry, EverySynchronousSchedule,
                         testing::ValuesIn(synchronous_schedules()), [](const auto& one) {
                           std::string name(one.param->name);
                           for (char& letter : name) {
                             if (letter == '-') letter = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace pipewright::tests
