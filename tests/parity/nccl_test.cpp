// Training over exec/transports/nccl's transport on the host's tables: the serial run's bits,
// whatever line the policy makes the messages wait in and whatever order the GPUs' work is done in.
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "exec/transports/nccl/communicators.hpp"
#include "exec/transports/nccl/run.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/parity/training_setting.hpp"
#include "tests/support/host_cuda.hpp"
#include "tests/support/host_nccl.hpp"

namespace pipewright::tests {
namespace nccl_test {

using exec::cuda::CudaResult;
using exec::cuda::CudaTraining;
using exec::cuda::Precision;

constexpr HostOrder kOrders[] = {HostOrder::Eager, HostOrder::Lazy, HostOrder::Shuffled};

CudaTraining exact(const Setting& setting, int steps) {
  CudaTraining how{setting.training, Precision::Exact, {}, {}};
  how.training.verified_steps = steps;
  return how;
}

CudaResult trained(HostOrder order, const Program& program, const CudaTraining& how, int steps) {
  const pipewright_cuda& cuda = host_cuda(order);
  return exec::nccl::run_on_nccl(cuda, host_nccl(cuda), program, costs_of(program, 1000), how,
                                 {.steps = steps});
}

void expect_serial_bits(const Program& program) {
  const Setting setting(program);
  for (const HostOrder order : kOrders) {
    const int before = host_nccl_calls();
    const CudaResult run = trained(order, program, exact(setting, 3), 3);
    ASSERT_TRUE(run.finished());
    ASSERT_TRUE(run.verify.has_value());
    EXPECT_TRUE(run.verify->gradients.bitwise) << run.verify->gradients.worst;
    EXPECT_TRUE(run.verify->parameters.bitwise) << run.verify->parameters.worst;
    EXPECT_GT(host_nccl_calls(), before);
    ASSERT_EQ(run.enqueued_ns.size(), 2U);
    for (const std::int64_t enqueued : run.enqueued_ns) EXPECT_GT(enqueued, 0);
    for (InstructionId id = 0; id < program.code.size(); ++id)
      EXPECT_GE(run.timeline.end[id], run.timeline.start[id]) << program.text(id);
  }
}

std::vector<CommPolicy> deferred_policies() {
  return {{.post = Post::Deferred},
          {.channel = Channel::Pair, .post = Post::Deferred},
          {.channel = Channel::Rank, .post = Post::Deferred},
          {.post = Post::Deferred, .in_flight = 2},
          {.issue = Issue::Inline, .post = Post::Deferred},
          comm_policy_preset("megatron-batched")};
}

TEST(NcclTransport, TrainsWithTheSerialRunsBitsUnderEveryLine) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    for (const CommPolicy& policy : deferred_policies()) {
      SCOPED_TRACE(std::string(schedule) + " " + std::string(to_string(policy.issue)) + " " +
                   std::string(to_string(policy.channel)));
      expect_serial_bits(
          lower(planner::make_order(schedule, {2, 4, 1, {}}), policy, {.optimizer = true}));
      if (HasFailure()) return;
    }
  }
}

TEST(NcclTransport, TrainsSeveralStagesARankAndReplicas) {
  for (const char* schedule : {"interleaved", "looped-bfs", "hanayo", "dualpipev"}) {
    SCOPED_TRACE(schedule);
    expect_serial_bits(lower(planner::make_order(schedule, {2, 4, 2, {}}), {.post = Post::Deferred},
                             {.optimizer = true}));
  }
  // Deferred receives of a V would meet other tensors.
  for (const char* schedule : {"zbv", "v-half"}) {
    SCOPED_TRACE(schedule);
    expect_serial_bits(lower(planner::make_order(schedule, {2, 4, 2, {}}), {.issue = Issue::Inline},
                             {.optimizer = true}));
  }
  const Order replicas = planner::replicate(planner::make_order("gpipe", {1, 2, 1, {}}), 2);
  const Program program = lower(replicas, {.post = Post::Deferred}, {.optimizer = true});
  const Setting setting(program);
  EXPECT_TRUE(trained(HostOrder::Lazy, program, exact(setting, 2), 2).verify->gradients.bitwise);
}

/// Messages are bytes; what they hold is of the GPUs alone.
TEST(NcclTransport, TrainsInBfloat16WithTheLossesOfCopies) {
  const Program program = lower(planner::make_order("1f1b", {2, 4, 1, {}}),
                                {.post = Post::Deferred}, {.optimizer = true});
  const Setting setting(program);
  CudaTraining how = exact(setting, 0);
  how.precision = Precision::Bfloat16;
  for (const HostOrder order : kOrders) {
    const CudaResult copied = exec::cuda::run_on_cuda(host_cuda(order), program,
                                                      costs_of(program, 1000), how, {.steps = 3});
    const CudaResult run = trained(order, program, how, 3);
    ASSERT_EQ(run.steps.size(), 3U);
    for (std::size_t step = 0; step < 3; ++step)
      EXPECT_EQ(run.steps[step].loss, copied.steps[step].loss) << "step " << step;
  }
}

/// A rank of 1F1B has a SEND and a RECV beside each other: NCCL starts one thread for the two.
TEST(NcclTransport, EndsBesideEachOtherAreOneGroup) {
  const Program program = lower(planner::make_order("1f1b", {2, 4, 1, {}}),
                                {.post = Post::Deferred}, {.optimizer = true});
  int groups = 0;
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    const bool follows = id > 0 && program.rank_of(id) == program.rank_of(id - 1) &&
                         is_transfer(program.code[id - 1].kind);
    groups += is_transfer(program.code[id].kind) && !follows ? 1 : 0;
  }
  const Setting setting(program);
  const int calls = host_nccl_calls(), threads = host_nccl_threads();
  const CudaResult run = trained(HostOrder::Lazy, program, exact(setting, 3), 3);
  EXPECT_TRUE(run.verify->gradients.bitwise);
  const int warm_ups = 2;  // a group of each rank for each of the two edges
  EXPECT_EQ(host_nccl_threads() - threads, 3 * groups + 2 * warm_ups);
  EXPECT_GT(host_nccl_calls() - calls, host_nccl_threads() - threads);
}

/// A kernel of NCCL that waits for another rank may hold up what CUDA does for an allocation.
TEST(NcclTransport, NothingIsAllocatedOnceCommunicatorsAreMade) {
  for (const CommPolicy& policy : deferred_policies()) {
    const Program program = lower(planner::make_order("1f1b", {2, 4, 1, {}}), policy,
                                  {.clips = true, .optimizer = true});
    const Setting setting(program);
    CudaTraining how = exact(setting, 0);
    how.training.optimizer.clip_grad_norm = 0.01;
    const CudaResult run = trained(HostOrder::Lazy, program, how, 3);
    EXPECT_EQ(host_nccl_late_allocations(), 0);
    ASSERT_EQ(run.memory.size(), 2U);
    for (std::size_t r = 0; r < 2; ++r) {
      const CudaResult::Memory& rank = run.memory[r];
      const auto plan = exec::nccl::communicators_of(program, costs_of(program, 1000));
      const auto share = exec::nccl::share_of(plan, RankId(static_cast<std::int64_t>(r)));
      EXPECT_EQ(rank.transport, share.ctas * kHostNcclBytesOfCta);
      EXPECT_GE(rank.reserved, rank.peak_activations + rank.weights);
      EXPECT_EQ(run.peak_bytes[r], rank.reserved + rank.workspace + rank.transport);
      EXPECT_EQ(run.peak_bytes[r] - run.unplanned_bytes[r], rank.peak_activations + rank.weights);
    }
  }
}

TEST(NcclTransport, TakesAGpuForEachRank) {
  const Program program = lower(planner::make_order("gpipe", {4, 4, 1, {}}), {});
  const Setting setting(program);
  EXPECT_THROW(trained(HostOrder::Eager, program, exact(setting, 1), 1), MachineError);
}

TEST(NcclTransport, RefusesWhatNcclCannotGive) {
  const Program program =
      lower(planner::make_order("gpipe", {2, 4, 1, {}}), comm_policy_preset("ideal"));
  const Setting setting(program);
  EXPECT_THROW(trained(HostOrder::Eager, program, exact(setting, 1), 1), InputError);
}

/// A run that nothing ends any more is given up, with its communicators aborted.
TEST(NcclTransport, IsGivenUpWhenAMessageNeverComes) {
  const Program stuck =
      lower(read_order_csv("0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1\n"
                           "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n",
                           "order.csv"),
            {.post = Post::Early});
  const Setting setting(stuck);
  CudaTraining how = exact(setting, 0);
  const pipewright_cuda& cuda = host_cuda(HostOrder::Eager);
  try {
    const auto run = exec::nccl::run_on_nccl(cuda, host_nccl(cuda), stuck, costs_of(stuck, 1000),
                                             how, {.steps = 1, .watchdog_ns = 200'000'000});
    EXPECT_FALSE(run.finished());
  } catch (const exec::RunFailed& failed) {
    EXPECT_FALSE(failed.result().finished());
  }
}

}  // namespace nccl_test
}  // namespace pipewright::tests
