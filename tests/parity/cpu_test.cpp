// The conformance matrix on the CPU: training with a pipeline gives the gradients and the losses of
// the serial run, whatever the schedule, the number of ranks and the policy.
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/error.hpp"
#include "exec/devices/cpu/device.hpp"
#include "exec/devices/cpu/serial.hpp"
#include "exec/devices/cpu/verify.hpp"
#include "sim/engine.hpp"
#include "tests/parity/training_setting.hpp"

namespace pipewright::tests {
namespace cpu_test {

using exec::cpu::run_on_cpu;

class Cpu : public testing::TestWithParam<RunCase> {};

TEST_P(Cpu, GradientsAreThoseOfTheSerialRun) {
  const Program program = program_of(GetParam());
  const CostTable costs = costs_of(program, 1000);
  Setting setting(program);
  setting.training.verified_steps = 2;
  const auto run = run_on_cpu(program, costs, setting.training, {.steps = 2});
  const bool fine = sim::check(program, costs).verdict == Verdict::Ok;
  ASSERT_EQ(run.finished(), fine);
  if (!fine) return;
  ASSERT_TRUE(run.verify.has_value());
  EXPECT_LE(run.verify->gradients.norm_rel, 1e-6) << run.verify->gradients.worst;
  EXPECT_GT(run.verify->compared, 0);
}

/// Twenty steps under one policy: values do not see which.
class CpuTraining : public Cpu {};

TEST_P(CpuTraining, LossesOfTwentyStepsAgreeToSixDigits) {
  const Program program = program_of(GetParam());
  Setting setting(program);
  const auto run = run_on_cpu(program, costs_of(program, 1000), setting.training, {.steps = 20});
  ASSERT_TRUE(run.finished());
  ASSERT_EQ(run.steps.size(), 20U);
  exec::SerialRun serial(setting.model, {.micro_batch_size = kMicroBatchSize,
                                         .micro_batches = program.micro_batches,
                                         .seed = 7,
                                         .optimizer = {}});
  for (int step = 0; step < 20; ++step) {
    const double expected = serial.step(*setting.data, step);
    const double found = run.steps[static_cast<std::size_t>(step)].loss.value();
    EXPECT_LE(std::abs(found - expected), 5e-7 * std::abs(expected)) << "step " << step;
  }
  EXPECT_LT(*run.steps.back().loss, *run.steps.front().loss);
}

INSTANTIATE_TEST_SUITE_P(Matrix, Cpu, testing::ValuesIn(all_run_cases()),
                         [](const auto& one) { return name_of(one.param); });

std::vector<RunCase> default_policy_cases() {
  std::vector<RunCase> cases = all_run_cases();
  std::erase_if(cases, [](const RunCase& one) {
    CommPolicy policy = comm_policy_preset(one.policy);
    policy.batches = Batches::Apart;
    return policy != CommPolicy{};
  });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Matrix, CpuTraining, testing::ValuesIn(default_policy_cases()),
                         [](const auto& one) { return name_of(one.param); });

TEST(CpuRun, VerifyNoticesAWrongWeight) {
  // The serial run starts from another seed, so nothing agrees.
  const Program program = program_of({"1f1b", 2, 4, 1, "torch"});
  Setting setting(program), other(program);
  exec::cpu::Device device(program, setting.training, RankId(0));
  exec::SerialRun serial(
      setting.model,
      {.micro_batch_size = kMicroBatchSize, .micro_batches = 4, .seed = 8, .optimizer = {}});
  const auto stages = device.stages();
  ASSERT_EQ(stages.size(), 1U);
  const auto ours = stages[0]->parameters();
  const auto theirs = serial.stage().parameters();
  const std::vector<exec::ParameterView> first(theirs.begin(),
                                               theirs.begin() + static_cast<long>(ours.size()));
  EXPECT_GT(exec::verify(ours, first).parameters.norm_rel, 0.1);
}

TEST(CpuRun, RefusesAProgramThatDoesNotFit) {
  const Program program = program_of({"1f1b", 2, 4, 1, "torch"});
  Setting setting(program);
  setting.training.stages.pop_back();
  EXPECT_THROW(run_on_cpu(program, costs_of(program, 1), setting.training), InputError);
  setting.training.stages = equal_stages(setting.model, program);
  setting.training.micro_batches = 5;
  EXPECT_THROW(run_on_cpu(program, costs_of(program, 1), setting.training), InputError);
}

}  // namespace cpu_test
}  // namespace pipewright::tests
