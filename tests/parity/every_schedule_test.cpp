// Every schedule of the registry for real: on the paced device with up to 32 ranks, and training on
// the CPU, where synchronous ones give the serial run's gradients and asynchronous ones learn.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/order/problems.hpp"
#include "exec/devices/cpu/device.hpp"
#include "exec/devices/cpu/serial.hpp"
#include "exec/devices/paced/device.hpp"
#include "planner/export/pytorch_actions.hpp"
#include "sim/engine.hpp"
#include "tests/parity/training_setting.hpp"

namespace pipewright::tests {
namespace every_schedule_test {

using exec::RunResult;
using exec::local::ClockKind;
using planner::Schedule;

/// Paddle's interleaved lists on two ranks: both directions of the ring go through one pair, and
/// even its fix hangs under its policy (tests/golden/paddle_orders_test.cpp).
bool hangs(const Schedule& schedule, int ranks) {
  return schedule.name == "paddle-vpp" && ranks == 2;
}

Program program_of(const Schedule& schedule, int ranks, int micro_batches) {
  const Order order =
      planner::make_order(schedule.name, {ranks, micro_batches, schedule.default_chunks, {}});
  const char* policy = schedule.policy.empty() ? "torch" : schedule.policy.data();
  return lower(order, comm_policy_preset(policy), {.optimizer = true});
}

class EverySchedule : public testing::TestWithParam<const Schedule*> {};

TEST_P(EverySchedule, PacedTimesAreTheSimulatorsUpTo32Ranks) {
  const Schedule& schedule = *GetParam();
  for (const int ranks : {2, 4, 8, 16, 32}) {
    if (hangs(schedule, ranks)) continue;
    const int m = micro_batches_for(schedule, ranks);
    ASSERT_GT(m, 0) << ranks;
    const Program program = program_of(schedule, ranks, m);
    const CostTable costs = costs_of(program, 1000);
    const sim::Result predicted = sim::simulate(program, costs);
    ASSERT_TRUE(predicted.finished) << ranks;
    const RunResult run = exec::paced::run_paced(program, costs, ClockKind::Virtual, {});
    ASSERT_TRUE(run.finished()) << ranks;
    EXPECT_EQ(run.timeline.start, predicted.timeline.start) << ranks;
    EXPECT_EQ(run.timeline.end, predicted.timeline.end) << ranks;
  }
}

TEST_P(EverySchedule, FinishesOnTheWallClockWith32Threads) {
  const Schedule& schedule = *GetParam();
  const Program program = program_of(schedule, 32, micro_batches_for(schedule, 32));
  const RunResult run =
      exec::paced::run_paced(program, costs_of(program, 0), ClockKind::Wall, {.steps = 2});
  EXPECT_TRUE(run.finished());
}

TEST_P(EverySchedule, TrainsOnTheCpu) {
  const Schedule& schedule = *GetParam();
  for (const int ranks : {2, 4}) {
    if (hangs(schedule, ranks)) continue;
    SCOPED_TRACE(ranks);
    const Program program = program_of(schedule, ranks, micro_batches_for(schedule, ranks));
    Setting setting(program);
    setting.training.verified_steps = schedule.traits.asynchronous ? 0 : 2;
    const auto run =
        exec::cpu::run_on_cpu(program, costs_of(program, 1000), setting.training, {.steps = 20});
    ASSERT_TRUE(run.finished());
    EXPECT_LT(*run.steps.back().loss, *run.steps.front().loss);
    if (schedule.traits.asynchronous) continue;
    ASSERT_TRUE(run.verify.has_value());
    EXPECT_LE(run.verify->gradients.norm_rel, 1e-6) << run.verify->gradients.worst;
    exec::SerialRun serial(setting.model, {.micro_batch_size = kMicroBatchSize,
                                           .micro_batches = program.micro_batches,
                                           .seed = 7,
                                           .optimizer = {}});
    for (std::size_t step = 0; step < run.steps.size(); ++step) {
      const double expected = serial.step(*setting.data, static_cast<int>(step));
      EXPECT_LE(std::abs(*run.steps[step].loss - expected), 1e-6 * std::abs(expected))
          << "step " << step;
    }
  }
}

/// With every wait of PyTorch 2.15, and UNSHARD, RESHARD and REDUCE_GRAD of a pipeline alone.
TEST_P(EverySchedule, TrainsOnTheCpuByTheActionsOfPyTorch) {
  const Schedule& schedule = *GetParam();
  const int m = micro_batches_for(schedule, 2);
  const Order order = planner::make_order(schedule.name, {2, m, schedule.default_chunks, {}});
  if (planner::torch_refusal_of(order)) GTEST_SKIP() << "PyTorch's runtime has no such order";
  const Order actions = planner::torch_actions(order, planner::TorchRelease::V2_15);
  ASSERT_EQ(problems_of(actions), std::vector<std::string>{});
  const Program program = lower(actions, comm_policy_preset("torch"), {.optimizer = true});
  Setting setting(program);
  setting.training.verified_steps = 1;
  const auto run =
      exec::cpu::run_on_cpu(program, costs_of(program, 1000), setting.training, {.steps = 1});
  ASSERT_TRUE(run.finished());
  ASSERT_TRUE(run.verify.has_value());
  EXPECT_LE(run.verify->gradients.norm_rel, 1e-6) << run.verify->gradients.worst;
}

std::vector<const Schedule*> all_schedules() {
  std::vector<const Schedule*> all;
  for (const Schedule& schedule : planner::schedules()) all.push_back(&schedule);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Registry, EverySchedule, testing::ValuesIn(all_schedules()),
                         [](const auto& one) { return name_of(*one.param); });

}  // namespace every_schedule_test
}  // namespace pipewright::tests
