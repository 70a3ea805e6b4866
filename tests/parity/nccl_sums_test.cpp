// NCCL's own sums of replicas' gradients on the host's tables: in floats within rounding of the
// serial run, with calls of exactly the REDUCE_GRADs; in exact numerics by way of the host.
#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "core/base/error.hpp"
#include "core/plan/tied_stages.hpp"
#include "exec/transports/nccl/communicators.hpp"
#include "exec/transports/nccl/run.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/parity/outcome.hpp"
#include "tests/support/host_cuda.hpp"
#include "tests/support/host_nccl.hpp"

namespace pipewright::tests {
namespace nccl_sums_test {

using exec::cuda::CudaResult;
using exec::cuda::CudaTraining;
using exec::cuda::Precision;

constexpr HostOrder kOrders[] = {HostOrder::Eager, HostOrder::Lazy, HostOrder::Shuffled};
constexpr double kMostApart = 2e-6;  // relative norm, of float32

/// The host's table with a GPU for each of four ranks.
const pipewright_cuda& four_gpus(HostOrder order) {
  static std::array<pipewright_cuda, 3> tables = [] {
    std::array<pipewright_cuda, 3> made;
    for (const HostOrder one : kOrders) {
      made[static_cast<std::size_t>(one)] = host_cuda(one);
      made[static_cast<std::size_t>(one)].gpus = [] { return 4; };
    }
    return made;
  }();
  return tables[static_cast<std::size_t>(order)];
}

/// SGD: AdamW would make of a gradient's rounding another update.
CudaTraining training_of(const Setting& setting, Precision precision) {
  CudaTraining how{setting.training, precision, {}, {}};
  how.training.optimizer.kind = exec::OptimizerKind::Sgd;
  how.training.verified_steps = kSteps;
  return how;
}

CudaResult trained(HostOrder order, const Program& program, const CudaTraining& how) {
  const pipewright_cuda& cuda = four_gpus(order);
  return exec::nccl::run_on_nccl(cuda, host_nccl(cuda), program, costs_of(program, 1000), how,
                                 {.steps = kSteps});
}

int members_of(const Program& program, ActionKind kind) {
  int members = 0;
  for (const Collective& collective : program.collectives)
    members += collective.kind == kind ? static_cast<int>(collective.members.size()) : 0;
  return members;
}

/// Calls of ncclAllReduce: what connects communicators, and one for each REDUCE_GRAD of a step, of
/// stages that are not sharded, for each REDUCE_NORM and for each REDUCE_TIED.
int expected_sums(const Program& program, bool in_steps) {
  int calls = 0;
  const auto plan = exec::nccl::communicators_of(program, costs_of(program, 1000));
  for (const auto& warm_up : plan.warm_ups) {
    if (warm_up.edges.empty())
      calls += static_cast<int>(plan.communicators[warm_up.communicator].members.size());
  }
  if (!in_steps) return calls;
  for (const ActionKind kind :
       {ActionKind::ReduceGrad, ActionKind::ReduceNorm, ActionKind::ReduceTied})
    calls += kSteps * members_of(program, kind);
  return calls;
}

void expect_summed(const Program& program, const CudaTraining& how) {
  ASSERT_GT(members_of(program, ActionKind::ReduceGrad), 0);
  exec::cpu::Training on_cpu = how.training;
  on_cpu.options.numerics = exec::Numerics::Exact;
  const Outcome expected = serial(on_cpu);
  for (const HostOrder order : kOrders) {
    const int before = host_nccl_sums();
    const CudaResult run = trained(order, program, how);
    ASSERT_TRUE(run.finished());
    EXPECT_EQ(host_nccl_sums() - before, expected_sums(program, true));
    ASSERT_TRUE(run.verify.has_value());
    EXPECT_LE(run.verify->gradients.norm_rel, kMostApart) << run.verify->gradients.worst;
    EXPECT_LE(run.verify->parameters.norm_rel, kMostApart) << run.verify->parameters.worst;
    ASSERT_EQ(run.steps.size(), expected.losses.size());
    for (std::size_t step = 0; step < run.steps.size(); ++step)
      EXPECT_NEAR(run.steps[step].loss.value(), expected.losses[step], 1e-5) << "step " << step;
    for (InstructionId id = 0; id < program.code.size(); ++id)
      EXPECT_GE(run.timeline.end[id], run.timeline.start[id]) << program.text(id);
  }
}

std::vector<CommPolicy> deferred_policies() {
  return {{.post = Post::Deferred},
          {.channel = Channel::Rank, .post = Post::Deferred},
          {.issue = Issue::Inline, .post = Post::Deferred},
          comm_policy_preset("megatron-batched")};
}

TEST(NcclSums, ReplicasTrainAsTheSerialRunDoesUnderEveryLine) {
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    for (const CommPolicy& policy : deferred_policies()) {
      SCOPED_TRACE(std::string(schedule) + " " + std::string(to_string(policy.issue)) + " " +
                   std::string(to_string(policy.channel)));
      const Order order = planner::replicate(planner::make_order(schedule, {2, 4, 1, {}}), 2);
      const Program program = lower(order, policy, {.optimizer = true});
      const Setting setting(program);
      expect_summed(program, training_of(setting, Precision::Float32));
      if (HasFailure()) return;
    }
  }
}

/// Running statistics, which are among what is compared, are summed in the same array.
TEST(NcclSums, ReplicasOfAnImageModelTrainAsTheSerialRunDoes) {
  const Order order = planner::replicate(planner::make_order("1f1b", {2, 4, 1, {}}), 2);
  const Program program = lower(order, {.post = Post::Deferred}, {.optimizer = true});
  const Setting setting(program, model_preset("resnet-tiny"));
  for (const HostOrder of_streams : kOrders) {
    const int before = host_nccl_sums();
    const CudaResult run = trained(of_streams, program, training_of(setting, Precision::Float32));
    ASSERT_TRUE(run.finished());
    EXPECT_EQ(host_nccl_sums() - before, expected_sums(program, true));
    ASSERT_TRUE(run.verify.has_value());
    EXPECT_LE(run.verify->gradients.norm_rel, 1e-5) << run.verify->gradients.worst;
    EXPECT_LE(run.verify->parameters.norm_rel, 1e-5) << run.verify->parameters.worst;
  }
}

TEST(NcclSums, SeveralStagesARankAreSummedOneBehindTheOther) {
  for (const char* schedule : {"interleaved", "looped-bfs"}) {
    SCOPED_TRACE(schedule);
    const Order order = planner::replicate(planner::make_order(schedule, {2, 4, 2, {}}), 2);
    const Program program = lower(order, {.post = Post::Deferred}, {.optimizer = true});
    const Setting setting(program);
    expect_summed(program, training_of(setting, Precision::Float32));
  }
}

/// Behind their sums NCCL adds up their squares, and the gradients of a tied table.
TEST(NcclSums, ClippingAndATiedHeadTakeTheSums) {
  const Model model = tied_transformer();
  const Order order = planner::replicate(planner::make_order("1f1b", {2, 4, 1, {}}), 2);
  LowerOptions options{.clips = true, .optimizer = true};
  options.tied = tied_stages(model, equal_stages(model, lower(order, {})));
  const Program program = lower(order, {.post = Post::Deferred}, options);
  ASSERT_GT(members_of(program, ActionKind::ReduceNorm), 0);
  ASSERT_GT(members_of(program, ActionKind::ReduceTied), 0);
  const Setting setting(program, model);
  CudaTraining how = training_of(setting, Precision::Float32);
  how.training.optimizer.clip_grad_norm = 0.01;
  expect_summed(program, how);
}

/// ZeRO 1: sums are scattered and weights gathered, in place, and in steps that are compared with
/// the serial run gradients too.
TEST(NcclSums, ShardedReplicasScatterTheirSumsAndGatherTheirWeights) {
  for (const char* schedule : {"1f1b", "interleaved"}) {
    for (const double clip : {0.0, 0.01}) {
      SCOPED_TRACE(schedule);
      const int chunks = std::string(schedule) == "1f1b" ? 1 : 2;
      const Order order = planner::replicate(planner::make_order(schedule, {2, 4, chunks, {}}), 2);
      const Program program = lower(order, {.post = Post::Deferred},
                                    {.clips = clip > 0, .optimizer = true, .sharded = true});
      const int sums = members_of(program, ActionKind::ReduceGrad);
      ASSERT_GT(sums, 0);
      ASSERT_EQ(members_of(program, ActionKind::Unshard), sums);
      const Setting setting(program);
      CudaTraining how = training_of(setting, Precision::Float32);
      how.training.optimizer.clip_grad_norm = clip;
      exec::cpu::Training on_cpu = how.training;
      on_cpu.options.numerics = exec::Numerics::Exact;
      const Outcome expected = serial(on_cpu);
      for (const HostOrder one : kOrders) {
        for (const int verified : {0, 2}) {
          how.training.verified_steps = verified;
          const int scattered = host_nccl_scattered_sums(), gathered = host_nccl_gatherings();
          const CudaResult run = trained(one, program, how);
          EXPECT_EQ(host_nccl_scattered_sums() - scattered, kSteps * sums);
          EXPECT_EQ(host_nccl_gatherings() - gathered, (kSteps + verified) * sums);
          ASSERT_TRUE(run.finished());
          for (std::size_t step = 0; step < run.steps.size(); ++step)
            EXPECT_NEAR(run.steps[step].loss.value(), expected.losses[step], 1e-5);
          if (verified == 0) continue;
          EXPECT_LE(run.verify->gradients.norm_rel, kMostApart) << run.verify->gradients.worst;
          EXPECT_LE(run.verify->parameters.norm_rel, kMostApart) << run.verify->parameters.worst;
        }
      }
    }
  }
}

/// Also in 16 bits, where what layers read is gathered, and each replica has its part of the
/// weights alone.
TEST(NcclSums, ShardedReplicasHaveTheLossesOfWholeOnes) {
  const Order order = planner::replicate(planner::make_order("1f1b", {2, 4, 1, {}}), 2);
  for (const Precision precision : {Precision::Float32, Precision::Bfloat16}) {
    std::vector<exec::StepLog> steps;
    for (const bool sharded : {false, true}) {
      const Program program =
          lower(order, {.post = Post::Deferred}, {.optimizer = true, .sharded = sharded});
      const Setting setting(program, small_llama());
      CudaTraining how = training_of(setting, precision);
      how.training.optimizer.kind = exec::OptimizerKind::AdamW;
      how.training.verified_steps = 1;
      const CudaResult run = trained(HostOrder::Shuffled, program, how);
      EXPECT_LE(run.verify->gradients.norm_rel, 3e-2) << run.verify->gradients.worst;
      steps.push_back(run.steps);
    }
    for (std::size_t step = 0; step < steps[0].size(); ++step)
      EXPECT_EQ(steps[1][step].loss, steps[0][step].loss) << "step " << step;
  }
}

TEST(NcclSums, ExactNumericsAddByWayOfTheHostWithTheSerialRunsBits) {
  const Order order = planner::replicate(planner::make_order("1f1b", {2, 4, 1, {}}), 2);
  const Program program = lower(order, {.post = Post::Deferred}, {.optimizer = true});
  const Setting setting(program);
  const int before = host_nccl_sums();
  const CudaResult run = trained(HostOrder::Lazy, program, training_of(setting, Precision::Exact));
  EXPECT_EQ(host_nccl_sums() - before, expected_sums(program, false));
  EXPECT_TRUE(run.verify->gradients.bitwise) << run.verify->gradients.worst;
  EXPECT_TRUE(run.verify->parameters.bitwise) << run.verify->parameters.worst;
}

/// A replica whose learning rate lets it diverge, or that is interrupted, must not leave the others
/// in a sum: what one rank throws ends the run of all.
TEST(NcclSums, ARunIsGivenUpWhenAReplicaFailsBeforeItsSum) {
  const Order order = planner::replicate(planner::make_order("gpipe", {1, 2, 1, {}}), 2);
  const Program program = lower(order, {.post = Post::Deferred}, {.optimizer = true});
  const Setting setting(program);
  const pipewright_cuda& cuda = four_gpus(HostOrder::Eager);
  const pipewright_nccl& whole = host_nccl(cuda);
  static std::atomic<int> calls;
  calls = 0;
  static const pipewright_nccl* table = nullptr;
  table = &whole;
  pipewright_nccl failing = whole;
  // The two that connect, and then one replica's: the other one's is refused.
  failing.all_reduce = [](const void* from, void* to, std::size_t count, int kind,
                          void* communicator, void* stream) {
    return ++calls > 3 ? 4 : table->all_reduce(from, to, count, kind, communicator, stream);
  };
  try {
    exec::nccl::run_on_nccl(cuda, failing, program, costs_of(program, 1000),
                            training_of(setting, Precision::Float32), {.steps = kSteps});
    FAIL() << "a sum that was refused has ended";
  } catch (const exec::RunFailed& failed) {
    EXPECT_NE(std::string(failed.what()).find("REDUCE_GRAD"), std::string::npos) << failed.what();
  }
}

}  // namespace nccl_sums_test
}  // namespace pipewright::tests
