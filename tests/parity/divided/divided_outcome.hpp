// What a training of divided layers comes to, beside the serial run's.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/parity/divided/divided_program.hpp"
#include "tests/parity/outcome.hpp"

namespace pipewright::tests {

struct Trained {
  std::vector<double> losses;
  exec::VerifyReport verify;
};

inline Trained train(const Program& program, const Model& model, exec::Numerics numerics,
                     const Layout& layout) {
  DividedSetting setting(program, model, numerics, layout);
  auto& training = setting.training;
  training.verified_steps = kSteps;
  Trained trained;
  exec::RunOptions options{.steps = kSteps};
  options.on_step = [&](int, const exec::StepResult& step) {
    trained.losses.push_back(step.loss.value());
  };
  const auto result = exec::cpu::run_on_cpu(program, costs_of(program, 1000), training, options);
  EXPECT_TRUE(result.finished());
  EXPECT_TRUE(result.verify.has_value());
  trained.verify = result.verify.value_or(exec::VerifyReport{});
  if (numerics == exec::Numerics::Exact) {
    EXPECT_EQ(trained.losses, serial(training).losses);
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

}  // namespace pipewright::tests
