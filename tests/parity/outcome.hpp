// What a training leaves, of a pipelined run and of the serial one, to be compared bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "exec/devices/cpu/device.hpp"
#include "exec/devices/cpu/serial.hpp"
#include "exec/devices/cpu/verify.hpp"
#include "exec/transports/local/transport.hpp"
#include "tests/parity/small_models.hpp"
#include "tests/parity/training_setting.hpp"

namespace pipewright::tests {

inline constexpr int kSteps = 3;

/// What a training leaves: losses by step; gradients and weights of the last one, by name.
struct Outcome {
  std::vector<double> losses;
  std::map<std::string, std::vector<float>> gradients, weights;

  void keep(std::span<const exec::ParameterView> views) {
    for (const auto& view : views) {
      const std::vector<float> gradient(view.gradient.begin(), view.gradient.end());
      const std::vector<float> weight(view.value.begin(), view.value.end());
      const bool is_new = gradients.emplace(view.name, gradient).second;
      weights.emplace(view.name, weight);
      if (is_new) continue;
      EXPECT_EQ(gradients.at(view.name), gradient) << "a replica of " << view.name;
      EXPECT_EQ(weights.at(view.name), weight) << "a replica of " << view.name;
    }
  }
};

inline Outcome pipelined(const Program& program, const exec::cpu::Training& training) {
  Outcome outcome;
  const CostTable costs = costs_of(program, 1000);
  exec::local::LocalTransport transport(program, exec::local::real_messages(program, costs));
  std::vector<const exec::cpu::Device*> devices(static_cast<std::size_t>(program.ranks()));
  const exec::DeviceFactory make = [&](RankId rank, exec::Clock&) {
    auto device = std::make_unique<exec::cpu::Device>(program, training, rank, &transport);
    devices[static_cast<std::size_t>(rank.value)] = device.get();
    return device;
  };
  exec::RunOptions options{.steps = kSteps};
  options.on_step = [&](int step, const exec::StepResult& result) {
    outcome.losses.push_back(result.loss.value());
    if (step != kSteps - 1) return;
    for (const auto* device : devices) outcome.keep(exec::parameters_of(device->stages()));
  };
  EXPECT_TRUE(exec::run(program, costs, transport, make, options).finished());
  return outcome;
}

inline Outcome serial(const exec::cpu::Training& training, int steps = kSteps) {
  Outcome outcome;
  exec::SerialRun run(*training.model, {.micro_batch_size = training.micro_batch_size,
                                        .micro_batches = training.micro_batches,
                                        .seed = training.seed,
                                        .optimizer = training.optimizer,
                                        .options = training.options});
  for (int step = 0; step < steps; ++step) outcome.losses.push_back(run.step(*training.data, step));
  outcome.keep(run.stage().parameters());
  return outcome;
}

inline void expect_equal(const Outcome& found, const Outcome& expected) {
  EXPECT_EQ(found.losses, expected.losses);
  ASSERT_EQ(found.weights.size(), expected.weights.size());
  for (const auto& [name, weight] : expected.weights) {
    EXPECT_EQ(found.weights.at(name), weight) << "weights of " << name;
    EXPECT_EQ(found.gradients.at(name), expected.gradients.at(name)) << "gradients of " << name;
  }
}

/// The schedule on so many ranks; nothing where it takes no such number, or hangs.
inline std::optional<Program> program_of(const planner::Schedule& schedule, int ranks) {
  // paddle-vpp hangs on two ranks (tests/parity/every_schedule_test.cpp).
  const bool hangs = schedule.name == "paddle-vpp" && ranks == 2;
  const int m = hangs ? 0 : micro_batches_for(schedule, ranks);
  if (m == 0) return std::nullopt;
  const Order order = planner::make_order(schedule.name, {ranks, m, schedule.default_chunks, {}});
  const char* policy = schedule.policy.empty() ? "torch" : schedule.policy.data();
  return lower(order, comm_policy_preset(policy), {.optimizer = true});
}

}  // namespace pipewright::tests
