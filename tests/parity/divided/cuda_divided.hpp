// Trainings of layers that ranks divide on the host's tables for GPUs, and what is expected of
// them.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "exec/devices/cuda/run.hpp"
#include "exec/transports/nccl/communicators.hpp"
#include "exec/transports/nccl/run.hpp"
#include "tests/parity/divided/divided_program.hpp"
#include "tests/parity/outcome.hpp"
#include "tests/support/host_cuda.hpp"
#include "tests/support/host_nccl.hpp"

namespace pipewright::tests {
namespace cuda_divided {

using exec::Numerics;
using exec::cuda::CudaResult;
using exec::cuda::CudaTraining;
using exec::cuda::Precision;

inline constexpr HostOrder kOrders[] = {HostOrder::Eager, HostOrder::Lazy, HostOrder::Shuffled};

/// The host's table with a GPU for each of eight ranks.
inline const pipewright_cuda& eight_gpus(HostOrder order) {
  static std::array<pipewright_cuda, 3> tables = [] {
    std::array<pipewright_cuda, 3> made;
    for (const HostOrder one : kOrders) {
      made[static_cast<std::size_t>(one)] = host_cuda(one);
      made[static_cast<std::size_t>(one)].gpus = [] { return 8; };
    }
    return made;
  }();
  return tables[static_cast<std::size_t>(order)];
}

inline CudaTraining training_of(const DividedSetting& setting, Precision precision) {
  CudaTraining how{setting.training, precision, {}, {}};
  how.training.verified_steps = kSteps;
  return how;
}

enum class Over : std::uint8_t { Copies, Nccl };

inline CudaResult trained(Over over, HostOrder order, const Program& program,
                          const CudaTraining& how, int steps = kSteps) {
  const CostTable costs = costs_of(program, 1000);
  if (over == Over::Copies)
    return exec::cuda::run_on_cuda(host_cuda(order), program, costs, how, {.steps = steps});
  const pipewright_cuda& cuda = eight_gpus(order);
  return exec::nccl::run_on_nccl(cuda, host_nccl(cuda), program, costs, how, {.steps = steps});
}

/// Over NCCL streams of their own, and calls on the one that computes.
inline std::vector<CommPolicy> policies_of(Over over) {
  if (over == Over::Copies) return {comm_policy_preset("torch")};
  return {CommPolicy{.post = Post::Deferred}, comm_policy_preset("megatron-batched")};
}

inline void expect_serial_bits(Over over, const Order& pipeline, const Model& model,
                               const Layout& layout) {
  for (const CommPolicy& policy : policies_of(over)) {
    SCOPED_TRACE(to_string(policy.issue));
    const Program program = divided(pipeline, model, layout, policy);
    DividedSetting setting(program, model, Numerics::Exact, layout);
    const Outcome expected = serial(setting.training);
    for (const HostOrder order : {HostOrder::Lazy, HostOrder::Shuffled}) {
      const CudaResult run = trained(over, order, program, training_of(setting, Precision::Exact));
      ASSERT_TRUE(run.finished());
      ASSERT_TRUE(run.verify.has_value());
      EXPECT_TRUE(run.verify->gradients.bitwise) << run.verify->gradients.worst;
      EXPECT_TRUE(run.verify->parameters.bitwise) << run.verify->parameters.worst;
      EXPECT_GT(run.verify->compared, 0);
      ASSERT_EQ(run.steps.size(), expected.losses.size());
      for (std::size_t step = 0; step < run.steps.size(); ++step)
        EXPECT_EQ(run.steps[step].loss, expected.losses[step]) << "step " << step;
      if (::testing::Test::HasFailure()) return;
    }
  }
}

/// Members' calls of what ranks bring together inside actions, or replicas.
inline int calls_of_groups(const Program& program, ActionKind kind) {
  int calls = 0;
  for (const Instruction& in : program.code) calls += in.kind == kind && in.in_collective() ? 1 : 0;
  return calls;
}

/// Those of all ranks: of norms and of tied tables.
inline int calls_of_all(const Program& program) {
  return calls_of_groups(program, ActionKind::ReduceNorm) +
         calls_of_groups(program, ActionKind::ReduceTied);
}

/// Of what connects communicators without an edge.
inline int connecting_sums(const Program& program) {
  int calls = 0;
  const auto plan = exec::nccl::communicators_of(program, costs_of(program, 1000));
  for (const auto& warm_up : plan.warm_ups) {
    if (warm_up.edges.empty())
      calls += static_cast<int>(plan.communicators[warm_up.communicator].members.size());
  }
  return calls;
}

}  // namespace cuda_divided
}  // namespace pipewright::tests
