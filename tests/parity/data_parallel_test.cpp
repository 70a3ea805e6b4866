// Data parallel beside pipeline: replicas of a whole pipeline in one Program train on parts of one
// batch and give the gradients of a serial run of all of it.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/order/problems.hpp"
#include "exec/devices/cpu/device.hpp"
#include "exec/devices/paced/device.hpp"
#include "planner/costs/cost_model.hpp"
#include "planner/memory/memory.hpp"
#include "planner/plans/data_parallel.hpp"
#include "sim/engine.hpp"
#include "tests/parity/training_setting.hpp"
#include "tests/support/update_orders.hpp"

namespace pipewright::tests {
namespace data_parallel_test {

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
  static Program program_of(const Schedule& schedule, int replicas, int ranks,
                            bool sharded = false) {
    const int m = micro_batches_for(schedule, ranks);
    const Order one = planner::make_order(schedule.name, {ranks, m, schedule.default_chunks, {}});
    const char* policy = schedule.policy.empty() ? "torch" : schedule.policy.data();
    return lower(replicate(one, replicas), comm_policy_preset(policy),
                 {.optimizer = true, .sharded = sharded});
  }
};

TEST_P(EverySynchronousSchedule, GivesTheSerialRunsGradientsWithTwoReplicasOfTwoRanks) {
  if (GetParam()->name == "paddle-vpp") GTEST_SKIP() << "hangs on two ranks, with or without dp";
  const Program program = program_of(*GetParam(), 2, 2);
  Setting setting(program);
  setting.training.verified_steps = 3;
  const auto run =
      exec::cpu::run_on_cpu(program, costs_of(program, 1000), setting.training, {.steps = 3});
  ASSERT_TRUE(run.finished());
  ASSERT_TRUE(run.verify.has_value());
  EXPECT_LE(run.verify->gradients.norm_rel, 1e-6) << run.verify->gradients.worst;
}

TEST_P(EverySynchronousSchedule, PacedTimesOfThreeReplicasAreTheSimulators) {
  const Program program = program_of(*GetParam(), 3, 4, true);
  CostTable costs = costs_of(program, 1000);
  costs.stages[0].reduce = Nanoseconds(700);
  costs.parameter_bytes.assign(costs.stages.size(), Bytes(6000));
  costs.every_route.bytes_per_second = 1e9;
  const sim::Result predicted = sim::simulate(program, costs);
  ASSERT_TRUE(predicted.finished);
  const RunResult run = exec::paced::run_paced(program, costs, ClockKind::Virtual, {});
  ASSERT_TRUE(run.finished());
  EXPECT_EQ(run.timeline.start, predicted.timeline.start);
  EXPECT_EQ(run.timeline.end, predicted.timeline.end);
}

// --- ZeRO stage 1 ---

using Weights = std::map<std::string, std::vector<float>>;  // by parameter

struct Trained {
  std::vector<Weights> ranks;
  std::vector<std::int64_t> optimizer_bytes;  // by rank
};

Trained train(const Program& program, int steps, exec::Numerics numerics) {
  Setting setting(program);
  setting.training.options.numerics = numerics;
  const CostTable costs = costs_of(program, 1000);
  exec::local::LocalTransport transport(program, exec::local::real_messages(program, costs));
  std::vector<const exec::cpu::Device*> devices(static_cast<std::size_t>(program.ranks()));
  const exec::DeviceFactory make = [&](RankId rank, exec::Clock&) {
    auto device = std::make_unique<exec::cpu::Device>(program, setting.training, rank, &transport);
    devices[static_cast<std::size_t>(rank.value)] = device.get();
    return device;
  };
  Trained trained;
  exec::RunOptions options;
  options.steps = steps;
  options.on_step = [&](int, const exec::StepResult&) {
    trained = {};
    for (const exec::cpu::Device* device : devices) {
      Weights& weights = trained.ranks.emplace_back();
      std::int64_t& bytes = trained.optimizer_bytes.emplace_back(0);
      for (const exec::cpu::Stage* stage : device->stages()) {
        bytes += stage->optimizer_bytes();
        for (const exec::ParameterView& view : stage->parameters())
          weights[view.name].assign(view.value.begin(), view.value.end());
      }
    }
  };
  EXPECT_TRUE(exec::run(program, costs, transport, make, options).finished());
  return trained;
}

TEST_P(EverySynchronousSchedule, ShardedUpdatesGiveTheSameWeightsBitForBitOnEveryReplica) {
  if (GetParam()->name == "paddle-vpp") GTEST_SKIP() << "hangs on two ranks, with or without dp";
  const Program plain = program_of(*GetParam(), 2, 2),
                sharded = program_of(*GetParam(), 2, 2, true);
  ASSERT_NE(plain.code.size(), sharded.code.size());
  for (const exec::Numerics numerics : {exec::Numerics::Fast, exec::Numerics::Exact}) {
    const Trained one = train(plain, 3, numerics), other = train(sharded, 3, numerics);
    EXPECT_EQ(one.ranks, other.ranks);
    EXPECT_EQ(one.ranks[0], other.ranks[2]);
  }
}

TEST_P(EverySynchronousSchedule, ShardedGradientsAreTheSerialRuns) {
  if (GetParam()->name == "paddle-vpp") GTEST_SKIP() << "hangs on two ranks, with or without dp";
  const Program program = program_of(*GetParam(), 2, 2, true);
  Setting setting(program);
  setting.training.verified_steps = 2;
  setting.training.options.numerics = exec::Numerics::Exact;
  const auto run =
      exec::cpu::run_on_cpu(program, costs_of(program, 1000), setting.training, {.steps = 2});
  ASSERT_TRUE(run.verify.has_value());
  EXPECT_TRUE(run.verify->gradients.bitwise) << run.verify->gradients.worst;
  EXPECT_TRUE(run.verify->parameters.bitwise) << run.verify->parameters.worst;
}

TEST(Sharding, EachReplicaKeepsItsPartOfTheOptimizersState) {
  const Order one = planner::make_order("1f1b", {2, 2, 1, {}});
  const auto program = [&](bool sharded) {
    return lower(replicate(one, 4), CommPolicy{}, {.optimizer = true, .sharded = sharded});
  };
  const Trained whole = train(program(false), 1, exec::Numerics::Fast);
  const Trained parts = train(program(true), 1, exec::Numerics::Fast);
  for (const int stage : {0, 1}) {
    std::int64_t sum = 0;
    for (const int replica : {0, 1, 2, 3}) {
      const auto rank = static_cast<std::size_t>(2 * replica + stage);
      sum += parts.optimizer_bytes[rank];
      // A quarter, up to one element of two moments.
      EXPECT_NEAR(static_cast<double>(parts.optimizer_bytes[rank]),
                  static_cast<double>(whole.optimizer_bytes[rank]) / 4, 8);
    }
    EXPECT_EQ(sum, whole.optimizer_bytes[static_cast<std::size_t>(stage)]);
  }
}

TEST(Sharding, APlansMemoryFallsByTheStateThatOthersKeep) {
  const Model model = small_model();
  const Cluster cluster = cluster_preset("local-cpu", 4);
  const planner::CostModel costs(model, cluster, nullptr, 4);
  const std::vector<StagePlan> stages = {{0, 4, RankId(0)}, {4, 8, RankId(1)}};
  const CostTable whole = costs.table(stages, 4, 2, "adamw"),
                  parts = costs.table(stages, 4, 2, "adamw", {.zero = 1, .count = 2});
  for (const std::size_t s : {0U, 1U}) {
    const planner::StageState state = planner::state_of(model, stages[s], "adamw");
    EXPECT_EQ(whole.memory[s].constant - parts.memory[s].constant,
              Bytes(state.optimizer.value / 2));
    EXPECT_EQ(parts.parameter_bytes[s], state.parameters);
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, EverySynchronousSchedule,
                         testing::ValuesIn(synchronous_schedules()),
                         [](const auto& one) { return name_of(*one.param); });

}  // namespace data_parallel_test
}  // namespace pipewright::tests
