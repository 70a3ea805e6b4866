// Exact numerics: whatever the schedule, the partition and the number of ranks, losses, gradients
// and parameters are those of the serial run bit for bit.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "exec/base/random.hpp"
#include "planner/plans/data_parallel.hpp"
#include "tests/parity/outcome.hpp"
#include "tests/parity/update_cases.hpp"

namespace pipewright::tests {
namespace exact_test {

using exec::Numerics;
using exec::cpu::Training;
using planner::Schedule;

void expect_serial_bits(const Program& program, const Model& model) {
  Setting setting(program, model);
  setting.training.options.numerics = Numerics::Exact;
  setting.training.verified_steps = kSteps;  // sharded replicas then show all gradients
  expect_equal(pipelined(program, setting.training), serial(setting.training));
}

class Exact : public testing::TestWithParam<const Schedule*> {};

TEST_P(Exact, GradientsParametersAndLossesAreTheSerialRunsBits) {
  int tried = 0;
  for (const int ranks : {1, 2, 4}) {
    const std::optional<Program> program = program_of(*GetParam(), ranks);
    if (!program) continue;
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    expect_serial_bits(*program, small_model());
    ++tried;
  }
  EXPECT_GT(tried, 0);
}

TEST_P(Exact, TwoReplicasOfTwoRanksHaveThemToo) {
  const planner::Schedule& schedule = *GetParam();
  if (schedule.name == "paddle-vpp") GTEST_SKIP() << "hangs on two ranks";
  const int m = micro_batches_for(schedule, 2);
  const Order one = planner::make_order(schedule.name, {2, m, schedule.default_chunks, {}});
  const char* policy = schedule.policy.empty() ? "torch" : schedule.policy.data();
  for (const bool sharded : {false, true}) {
    SCOPED_TRACE(sharded ? "ZeRO stage 1" : "data parallel");
    expect_serial_bits(lower(planner::replicate(one, 2), comm_policy_preset(policy),
                             {.optimizer = true, .sharded = sharded}),
                       small_model());
  }
}

TEST_P(Exact, AMixtureOfExpertsHasThemToo) {
  for (const int ranks : {2, 4}) {
    const std::optional<Program> program = program_of(*GetParam(), ranks);
    if (!program) continue;
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    expect_serial_bits(*program, small_mixtral());
    expect_serial_bits(*program, small_deepseek());
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, Exact, testing::ValuesIn(synchronous_schedules()),
                         [](const auto& one) { return name_of(*one.param); });

TEST(ExactNumerics, ATransformerHasTheSerialRunsBitsToo) {
  for (const char* schedule : {"gpipe", "zb-h1", "chimera"}) {
    for (const int ranks : {2, 4}) {
      SCOPED_TRACE(schedule + std::to_string(ranks));
      expect_serial_bits(program_of({schedule, ranks, 8, 1, "torch"}), small_transformer());
      expect_serial_bits(program_of({schedule, ranks, 8, 1, "torch"}), small_llama());
    }
  }
}

TEST(ExactNumerics, ReplicasOfAMixtureOfExpertsHaveTheSerialRunsBits) {
  const Order replicas = planner::replicate(planner::make_order("1f1b", {2, 4, 1, {}}), 2);
  for (const bool sharded : {false, true}) {
    SCOPED_TRACE(sharded ? "ZeRO stage 1" : "data parallel");
    for (const Model& model : {small_mixtral(), small_deepseek()})
      expect_serial_bits(
          lower(replicas, comm_policy_preset("torch"), {.optimizer = true, .sharded = sharded}),
          model);
  }
}

TEST(ExactNumerics, OrdersWithReplicasAndPairsHaveTheSerialRunsBits) {
  for (const UpdateCase& one : update_cases()) {
    const Program program = lower(one.order, comm_policy_preset("torch"), {.optimizer = true});
    if (program.asynchronous) continue;
    SCOPED_TRACE(one.name);
    expect_serial_bits(program, small_model());
  }
}

TEST(ExactNumerics, FastOnesDoDifferWhereReplicasAddTheirParts) {
  // Else the tests above would show nothing.
  const Program program = program_of({"chimera", 4, 8, 1, "torch"});
  Setting setting(program);
  const Outcome found = pipelined(program, setting.training);
  EXPECT_NE(found.gradients, serial(setting.training).gradients);
}

/// One stage of all layers: forward in ascending order, then I and W of the micro-batches as
/// listed.
exec::cpu::Stage stage_after(const Training& training, const std::vector<int>& order) {
  exec::cpu::Stage stage(*training.model, 0, static_cast<int>(training.model->layers.size()),
                         training.micro_batch_size, training.micro_batches, training.seed,
                         training.optimizer, training.options);
  for (int m = 0; m < training.micro_batches; ++m) {
    stage.set_batch(m, training.data->micro_batch(0, m));
    stage.forward(m, {});
  }
  for (const int m : order) {
    stage.backward_input(m, {});
    stage.backward_weight(m);
  }
  stage.update(0);
  return stage;
}

TEST(ExactNumerics, TheOrderOfTheBackwardsLeavesNoTrace) {
  const Program program = program_of({"gpipe", 1, 8, 1, "torch"});
  Setting setting(program, small_transformer());
  std::vector<int> order(8);
  std::iota(order.begin(), order.end(), 0);
  const auto outcome_of = [&](Numerics numerics) {
    setting.training.options.numerics = numerics;
    Outcome outcome;
    outcome.keep(stage_after(setting.training, order).parameters());
    return outcome.weights;
  };
  const auto exact = outcome_of(Numerics::Exact), fast = outcome_of(Numerics::Fast);
  int differing = 0;
  for (std::uint64_t turn = 0; turn < 10; ++turn) {
    for (std::size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[exec::uniform_below(exec::key_of(turn, "order"), i, i)]);
    EXPECT_EQ(outcome_of(Numerics::Exact), exact);
    differing += outcome_of(Numerics::Fast) != fast ? 1 : 0;
  }
  EXPECT_GT(differing, 0);
}

TEST(ExactNumerics, VerifyAsksForBitsOfGradientsAndParameters) {
  const Program program = program_of({"chimera", 4, 8, 1, "torch"});
  Setting setting(program);
  setting.training.options.numerics = Numerics::Exact;
  setting.training.verified_steps = 2;
  const auto run =
      exec::cpu::run_on_cpu(program, costs_of(program, 1000), setting.training, {.steps = 2});
  ASSERT_TRUE(run.verify.has_value());
  EXPECT_EQ(run.verify->numerics, Numerics::Exact);
  EXPECT_TRUE(run.verify->gradients.bitwise);
  EXPECT_TRUE(run.verify->parameters.bitwise);
}

TEST(ExactNumerics, AGradientThatOverflowsEndsTheRunAndNamesTheParameter) {
  const Program program = program_of({"1f1b", 2, 4, 1, "torch"});
  Setting setting(program);
  setting.training.options.numerics = Numerics::Exact;
  setting.training.optimizer.kind = exec::OptimizerKind::Sgd;
  setting.training.optimizer.learning_rate = 1e12;
  try {
    exec::cpu::run_on_cpu(program, costs_of(program, 1000), setting.training, {.steps = 5});
    FAIL() << "diverged in silence";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the gradient of \""), std::string::npos)
        << error.what();
  }
}

}  // namespace exact_test
}  // namespace pipewright::tests
