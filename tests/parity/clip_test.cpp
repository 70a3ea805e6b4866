// Clipping by the norm of all gradients, whose parts lie on several ranks: as in the serial run,
// bit for bit, and in it as by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/error.hpp"
#include "exec/devices/paced/device.hpp"
#include "planner/plans/data_parallel.hpp"
#include "sim/engine.hpp"
#include "tests/parity/outcome.hpp"
#include "tests/support/update_orders.hpp"

namespace pipewright::tests {
namespace clip_test {

using exec::Numerics;

/// Smaller than the norm of every step here, so that every one is clipped.
constexpr double kMost = 0.01;

Program clipping(const Order& order, const char* policy, bool sharded = false) {
  return lower(order, comm_policy_preset(policy),
               {.clips = true, .optimizer = true, .sharded = sharded});
}

void expect_serial_bits(const Program& program) {
  Setting setting(program);
  setting.training.options.numerics = Numerics::Exact;
  setting.training.verified_steps = kSteps;  // sharded replicas then show all gradients
  setting.training.optimizer.kind = exec::OptimizerKind::Sgd;  // AdamW hides a factor
  setting.training.optimizer.learning_rate = 0.5;
  const Outcome free = serial(setting.training);
  setting.training.optimizer.clip_grad_norm = kMost;
  const Outcome clipped = serial(setting.training);
  expect_equal(pipelined(program, setting.training), clipped);
  EXPECT_NE(clipped.weights, free.weights);
}

class Clip : public testing::TestWithParam<const planner::Schedule*> {};

TEST_P(Clip, ScalesAsTheSerialRunDoes) {
  const planner::Schedule& schedule = *GetParam();
  for (const int ranks : {1, 2, 4}) {
    const int m =
        schedule.name == "paddle-vpp" && ranks == 2 ? 0 : micro_batches_for(schedule, ranks);
    if (m == 0) continue;
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    const char* policy = schedule.policy.empty() ? "torch" : schedule.policy.data();
    const Order order = planner::make_order(schedule.name, {ranks, m, schedule.default_chunks, {}});
    expect_serial_bits(clipping(order, policy));
    if (ranks != 2) continue;
    expect_serial_bits(clipping(planner::replicate(order, 2), policy));
    expect_serial_bits(clipping(planner::replicate(order, 2), policy, true));
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, Clip, testing::ValuesIn(synchronous_schedules()),
                         [](const auto& one) { return name_of(*one.param); });

double norm_of(const Outcome& outcome) {
  double sum = 0;
  for (const auto& [name, gradient] : outcome.gradients) {
    for (const float g : gradient) sum += static_cast<double>(g) * static_cast<double>(g);
  }
  return std::sqrt(sum);
}

TEST(Clipping, LeavesTheNormThatIsAskedForAndTheDirection) {
  const Program program = program_of({"1f1b", 1, 4, 1, "torch"});
  Setting setting(program);
  const auto after_one_step = [&](double most) {
    setting.training.optimizer.clip_grad_norm = most;
    exec::SerialRun run(*setting.training.model, {.micro_batch_size = kMicroBatchSize,
                                                  .micro_batches = 4,
                                                  .seed = 7,
                                                  .optimizer = setting.training.optimizer});
    run.step(*setting.data, 0);
    Outcome outcome;
    outcome.keep(run.stage().parameters());
    return outcome;
  };
  const Outcome free = after_one_step(0), clipped = after_one_step(kMost);
  EXPECT_GT(norm_of(free), 2 * kMost);
  EXPECT_NEAR(norm_of(clipped), kMost, 1e-6 * kMost);
  const double factor = kMost / norm_of(free);
  for (const auto& [name, gradient] : free.gradients) {
    for (std::size_t i = 0; i < gradient.size(); ++i)
      EXPECT_NEAR(clipped.gradients.at(name)[i], factor * gradient[i],
                  1e-6 * std::abs(gradient[i]));
  }
  EXPECT_EQ(after_one_step(2 * norm_of(free)).gradients, free.gradients);
}

/// A Program may ask for one all the same.
TEST(Clipping, LeavesGradientsAloneWhereNobodyAsksForANorm) {
  const Program program = clipping(planner::make_order("1f1b", {2, 4, 1, {}}), "torch");
  Setting setting(program);
  setting.training.options.numerics = Numerics::Exact;
  expect_equal(pipelined(program, setting.training), serial(setting.training));
}

TEST(Clipping, NeedsAProgramWithANormAndASynchronousOrder) {
  const Program program = program_of({"1f1b", 2, 4, 1, "torch"});
  Setting setting(program);
  setting.training.optimizer.clip_grad_norm = 1;
  EXPECT_THROW(exec::cpu::run_on_cpu(program, costs_of(program, 1), setting.training), InputError);
  EXPECT_THROW(clipping(test::pipedream_order(2, 4), "torch"), InputError);
}

TEST(Clipping, IsTimedAlikeByTheSimulatorAndThePacedDevice) {
  for (const char* policy : {"torch", "ideal", "megatron-batched", "mpi-eager"}) {
    SCOPED_TRACE(policy);
    const Order order = planner::make_order("1f1b", {4, 8, 1, {}});
    const Program program = clipping(planner::replicate(order, 2), policy);
    CostTable costs = costs_of(program, 1000);
    costs.parameter_bytes.assign(static_cast<std::size_t>(program.stages), Bytes(4000));
    const sim::Result predicted = sim::simulate(program, costs);
    ASSERT_TRUE(predicted.finished);
    const auto run =
        exec::paced::run_paced(program, costs, exec::local::ClockKind::Virtual, {.steps = 2});
    ASSERT_TRUE(run.finished());
    EXPECT_EQ(run.timeline.start, predicted.timeline.start);
    EXPECT_EQ(run.timeline.end, predicted.timeline.end);
  }
}

}  // namespace clip_test
}  // namespace pipewright::tests
