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

/// In fast numerics, under 1F1B on two pipeline ranks: both within so much of the serial run's.
inline void expect_near_serial_run(const Model& model, const Layout& layout, double gradients,
                                   double parameters) {
  const Program program = divided(planner::make_order("1f1b", {2, 4, 1, {}}), model, layout,
                                  "torch", exec::Numerics::Fast);
  const exec::VerifyReport verify = train(program, model, exec::Numerics::Fast, layout).verify;
  EXPECT_LT(verify.gradients.norm_rel, gradients);
  EXPECT_LT(verify.parameters.norm_rel, parameters);
  EXPECT_FALSE(verify.gradients.bitwise);  // else exact numerics would show nothing
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
