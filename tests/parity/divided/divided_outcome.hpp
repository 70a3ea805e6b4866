// What a training of divided layers comes to, beside the serial run's.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "tests/parity/divided/divided_program.hpp"
#include "tests/parity/outcome.hpp"

namespace pipewright::tests {

struct Trained {
  std::vector<double> losses;
  exec::VerifyReport verify;
};

/// `verified`: of the steps the first ones that are compared with the serial run's.
inline Trained train(const Program& program, const Model& model, exec::Numerics numerics,
                     const Layout& layout, int steps = kSteps, int verified = kSteps) {
  DividedSetting setting(program, model, numerics, layout);
  auto& training = setting.training;
  training.verified_steps = verified;
  Trained trained;
  exec::RunOptions options{.steps = steps};
  options.on_step = [&](int, const exec::StepResult& step) {
    trained.losses.push_back(step.loss.value());
  };
  const auto result = exec::cpu::run_on_cpu(program, costs_of(program, 1000), training, options);
  EXPECT_TRUE(result.finished());
  EXPECT_TRUE(result.verify.has_value());
  trained.verify = result.verify.value_or(exec::VerifyReport{});
  const std::vector<double> expected = serial(training, steps).losses;
  if (numerics == exec::Numerics::Exact) {
    EXPECT_EQ(trained.losses, expected);
  } else {
    for (std::size_t s = 0; s < expected.size(); ++s)
      EXPECT_NEAR(trained.losses.at(s), expected[s], 1e-6 * expected[s]) << "step " << s;
  }
  return trained;
}

inline void expect_serial_bits(const Order& pipeline, const Model& model, const Layout& layout,
                               const char* policy = "torch") {
  const Trained trained =
      train(divided(pipeline, model, layout, policy), model, exec::Numerics::Exact, layout);
  EXPECT_TRUE(trained.verify.gradients.bitwise) << trained.verify.gradients.worst;
  EXPECT_TRUE(trained.verify.parameters.bitwise) << trained.verify.parameters.worst;
}

/// Of two replicas beside the layout: at each of these stages of ZeRO.
inline void expect_serial_bits_beside_zero(const Order& pipeline, const Model& model, Layout layout,
                                           std::initializer_list<int> stages = {0, 1, 2, 3}) {
  layout.replicas = 2;
  for (const int zero : stages) {
    SCOPED_TRACE("ZeRO stage " + std::to_string(zero));
    layout.sharded = zero > 0;
    layout.zero = zero;
    expect_serial_bits(pipeline, model, layout);
  }
}

/// AdamW divides a gradient by its own size. That of the keys' biases is 0 but for rounding, as a
/// softmax does not change with what all its elements have in common: after five steps these
/// biases are 2 to 3e-3 apart, which is 1 to 4e-6 of all the weights of a small model.
inline constexpr double kWithKeyBiases = 1e-5;

/// In fast numerics, under 1F1B on two pipeline ranks: gradients of the first step and losses
/// within 1e-6 of the serial run's, weights after five steps within `weights`.
inline void expect_near_serial_run(const Model& model, const Layout& layout,
                                   double weights = 1e-6) {
  constexpr auto kFast = exec::Numerics::Fast;
  const Program program =
      divided(planner::make_order("1f1b", {2, 4, 1, {}}), model, layout, "torch", kFast);
  const exec::VerifyReport first = train(program, model, kFast, layout, 1, 1).verify;
  EXPECT_LT(first.gradients.norm_rel, 1e-6) << first.gradients.worst;
  EXPECT_FALSE(first.gradients.bitwise);  // else exact numerics would show nothing
  const exec::VerifyReport all = train(program, model, kFast, layout, 5, 5).verify;
  EXPECT_LT(all.parameters.norm_rel, weights) << all.parameters.worst;
}

/// On two and on four pipeline ranks, as far as the schedule has them; `layout_of(ranks)` says how
/// each is divided.
template <class LayoutOf>
void expect_serial_bits_under(const planner::Schedule& schedule, const Model& model,
                              LayoutOf layout_of) {
  const char* policy = schedule.policy.empty() ? "torch" : schedule.policy.data();
  int tried = 0;
  for (const int ranks : {2, 4}) {
    const bool hangs = schedule.name == "paddle-vpp" && ranks == 2;
    const int m = hangs ? 0 : micro_batches_for(schedule, ranks);
    if (m == 0) continue;
    SCOPED_TRACE(std::to_string(ranks) + " pipeline ranks");
    const Order order = planner::make_order(schedule.name, {ranks, m, schedule.default_chunks, {}});
    expect_serial_bits(order, model, layout_of(ranks), policy);
    ++tried;
  }
  EXPECT_GT(tried, 0);
}

}  // namespace pipewright::tests
