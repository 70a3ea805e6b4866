// Replicas that divide gradients and weights (ZeRO 2 and 3) over NCCL, on the host's tables: in
// floats within rounding of the serial run, with exactly the Program's reduce-scatters and
// all-gathers; in exact numerics by way of the hosts, with its bits.
#include <gtest/gtest.h>

#include <string>

#include "core/plan/tied_stages.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/parity/divided/cuda_divided.hpp"

namespace pipewright::tests {
namespace nccl_zero_test {

using namespace cuda_divided;

struct Way {
  const char* schedule = "1f1b";
  int replicas = 2, zero = 2, ahead = 0;
  bool clips = false;
};

Program program_of(const Way& way, const CommPolicy& policy) {
  const int chunks = std::string(way.schedule) == "interleaved" ? 2 : 1;
  const Order order = planner::replicate(
      planner::make_order(way.schedule, {2, 12 / way.replicas, chunks, {}}), way.replicas);
  LowerOptions options{.clips = way.clips, .optimizer = true, .sharded = way.zero > 0};
  if (way.zero > 0) options.sharding = {.zero = way.zero, .ahead = way.ahead};
  return lower(order, policy, options);
}

/// SGD: AdamW would make of a gradient's rounding another update.
CudaTraining floats_of(const Setting& setting, const Way& way) {
  CudaTraining how{setting.training, Precision::Float32, {}, {}};
  how.training.optimizer.kind = exec::OptimizerKind::Sgd;
  how.training.optimizer.clip_grad_norm = way.clips ? 0.01 : 0;
  how.training.verified_steps = kSteps;
  return how;
}

struct Calls {
  int sums = 0, scattered = 0, gathered = 0;
};
Calls calls_so_far() {
  return {host_nccl_sums(), host_nccl_scattered_sums(), host_nccl_gatherings()};
}
/// `sums`: of running statistics, beside each sum of gradients; the norm is one more. `gathered`:
/// arrays of each UNSHARD, which with ZeRO 1 are also gradients that are looked at.
void expect_called(const Calls& before, const Program& program, int sums = 0, int gathered = 1) {
  const Calls now = calls_so_far();
  const int reduced = calls_of_groups(program, ActionKind::ReduceGrad);
  EXPECT_EQ(now.scattered - before.scattered, kSteps * reduced);
  EXPECT_EQ(now.gathered - before.gathered,
            kSteps * gathered * calls_of_groups(program, ActionKind::Unshard));
  const int norms = calls_of_groups(program, ActionKind::ReduceNorm);
  EXPECT_EQ(now.sums - before.sums, connecting_sums(program) + kSteps * (sums * reduced + norms));
}

/// Nothing is allocated beside NCCL, however often whole arrays come and go.
void expect_divided(const Way& way, const CommPolicy& policy) {
  SCOPED_TRACE(std::string(way.schedule) + " " + std::string(to_string(policy.issue)) + ", ZeRO " +
               std::to_string(way.zero) + ", " + std::to_string(way.replicas) + " replicas");
  const Program program = program_of(way, policy);
  const Setting setting(program);
  const CudaTraining how = floats_of(setting, way);
  exec::cpu::Training on_cpu = how.training;
  on_cpu.options.numerics = exec::Numerics::Exact;
  const Outcome expected = serial(on_cpu);
  for (const HostOrder order : kOrders) {
    const Calls before = calls_so_far();
    const CudaResult run = trained(Over::Nccl, order, program, how);
    ASSERT_TRUE(run.finished());
    expect_called(before, program);
    EXPECT_EQ(host_nccl_late_allocations(), 0);
    ASSERT_TRUE(run.verify.has_value());
    EXPECT_LE(run.verify->gradients.norm_rel, 2e-6) << run.verify->gradients.worst;
    EXPECT_LE(run.verify->parameters.norm_rel, 2e-6) << run.verify->parameters.worst;
    ASSERT_EQ(run.steps.size(), expected.losses.size());
    for (std::size_t step = 0; step < run.steps.size(); ++step)
      EXPECT_NEAR(run.steps[step].loss.value(), expected.losses[step], 1e-5) << "step " << step;
  }
}

TEST(NcclZero, SumsAreScatteredAndWeightsGatheredAsTheProgramSays) {
  for (const int zero : {2, 3}) {
    for (const CommPolicy& policy : policies_of(Over::Nccl)) {
      expect_divided({"1f1b", 2, zero, 0, true}, policy);
      expect_divided({"zb-h1", 3, zero}, policy);
      expect_divided({"gpipe", 4, zero}, policy);
    }
    expect_divided({"interleaved", 2, zero, 0, true}, {.post = Post::Deferred});
  }
}

TEST(NcclZero, WeightsAreGatheredAhead) {
  for (const int ahead : {1, 2})
    expect_divided({"interleaved", 2, 3, ahead}, {.post = Post::Deferred});
}

/// Of running statistics every replica gets the sum.
TEST(NcclZero, StatisticsOfImagesAreSummedBeside) {
  for (const int zero : {1, 2, 3}) {
    const Way way{"1f1b", 2, zero};
    const Program program = program_of(way, {.post = Post::Deferred});
    const Setting setting(program, model_preset("resnet-tiny"));
    const Calls before = calls_so_far();
    const CudaResult run =
        trained(Over::Nccl, HostOrder::Shuffled, program, floats_of(setting, way));
    ASSERT_TRUE(run.finished());
    expect_called(before, program, 1, zero == 1 ? 2 : 1);
    EXPECT_LE(run.verify->gradients.norm_rel, 1e-5) << run.verify->gradients.worst;
    EXPECT_LE(run.verify->parameters.norm_rel, 1e-5) << run.verify->parameters.worst;
  }
}

/// Where a step has one sum of each stage; in 16 bits too, where what layers read is gathered.
TEST(NcclZero, HasTheLossesOfReplicasThatDivideNothing) {
  for (const Precision precision : {Precision::Float32, Precision::Bfloat16}) {
    std::vector<exec::StepLog> all;
    for (const int zero : {0, 2, 3}) {
      const Program program = program_of({"1f1b", 2, zero}, {.post = Post::Deferred});
      const Setting setting(program, small_llama());
      CudaTraining how{setting.training, precision, {}, {}};
      how.training.verified_steps = 1;
      const CudaResult run = trained(Over::Nccl, HostOrder::Shuffled, program, how);
      ASSERT_TRUE(run.verify.has_value());
      EXPECT_LE(run.verify->gradients.norm_rel, precision == Precision::Float32 ? 2e-6 : 3e-2)
          << run.verify->gradients.worst;
      all.push_back(run.steps);
      for (std::size_t step = 0; step < run.steps.size(); ++step)
        EXPECT_EQ(run.steps[step].loss, all[0][step].loss) << "ZeRO " << zero << ", step " << step;
    }
  }
}

/// Replicas of a table's holders bring their own parts of its gradient, for all to add up.
TEST(NcclZero, ATableOfTwoStagesIsOne) {
  const Model model = tied_transformer();
  const Order order = planner::replicate(planner::make_order("1f1b", {2, 4, 1, {}}), 2);
  for (const int zero : {1, 2, 3}) {
    LowerOptions options{.clips = true, .optimizer = true, .sharded = true};
    options.sharding.zero = zero;
    options.tied = tied_stages(model, equal_stages(model, lower(order, {})));
    const Program program = lower(order, {.post = Post::Deferred}, options);
    const Setting setting(program, model);
    const CudaResult run = trained(Over::Nccl, HostOrder::Shuffled, program,
                                   floats_of(setting, {"1f1b", 2, zero, 0, true}));
    ASSERT_TRUE(run.finished());
    EXPECT_LE(run.verify->gradients.norm_rel, 2e-6) << run.verify->gradients.worst;
    EXPECT_LE(run.verify->parameters.norm_rel, 2e-6) << run.verify->parameters.worst;
  }
}

/// Beside ranks that divide layers, rows and sequences, pipelines, clipping and recomputation.
TEST(NcclZero, DividedLayersHaveTheSerialRunsBits) {
  const Model model = with_eight_tokens({{"style", "llama"}, {"kv_heads", 4}});
  const std::vector<LayerRecompute> whole(model.layers.size(), LayerRecompute::Whole);
  const Order alone = planner::make_order("1f1b", {1, 4, 1, {}});
  const Order pipeline = planner::make_order("1f1b", {2, 4, 1, {}});
  for (const int zero : {2, 3}) {
    SCOPED_TRACE("ZeRO " + std::to_string(zero));
    for (const Over over : {Over::Copies, Over::Nccl}) {
      const Order& order = over == Over::Copies ? pipeline : alone;
      expect_serial_bits(over, order, model,
                         {.replicas = 2, .sharded = true, .zero = zero, .rows = true});
      expect_serial_bits(over, order, model,
                         {.tensor = 1, .replicas = 2, .sharded = true, .zero = zero, .context = 2});
    }
    expect_serial_bits(
        Over::Copies, alone, model,
        {.tensor = 1, .replicas = 2, .sharded = true, .recompute = whole, .zero = zero});
  }
}

TEST(NcclZero, DividedLayersAreSummedByNccl) {
  const Model model = with_eight_tokens({{"style", "llama"}, {"kv_heads", 4}});
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  for (const int zero : {2, 3}) {
    for (const CommPolicy& policy : policies_of(Over::Nccl)) {
      const Layout layout{.replicas = 2, .sharded = true, .zero = zero, .rows = true};
      const Program program = divided(order, model, layout, policy, Numerics::Fast);
      const DividedSetting setting(program, model, Numerics::Fast, layout);
      CudaTraining how = training_of(setting, Precision::Float32);
      how.training.optimizer.kind = exec::OptimizerKind::Sgd;
      const Calls before = calls_so_far();
      const CudaResult run = trained(Over::Nccl, HostOrder::Shuffled, program, how);
      ASSERT_TRUE(run.finished());
      const Calls now = calls_so_far();
      EXPECT_EQ(now.scattered - before.scattered,
                kSteps * (calls_of_groups(program, ActionKind::ReduceScatter) +
                          calls_of_groups(program, ActionKind::ReduceGrad)));
      EXPECT_EQ(now.gathered - before.gathered,
                kSteps * (calls_of_groups(program, ActionKind::AllGather) +
                          calls_of_groups(program, ActionKind::Unshard)));
      EXPECT_LE(run.verify->gradients.norm_rel, 2e-6) << run.verify->gradients.worst;
      EXPECT_LE(run.verify->parameters.norm_rel, 2e-6) << run.verify->parameters.worst;
    }
  }
}

TEST(NcclZero, ExactNumericsGoByWayOfTheHosts) {
  for (const int zero : {2, 3}) {
    const Program program = program_of({"interleaved", 2, zero, 0, true}, {.post = Post::Deferred});
    const Setting setting(program);
    CudaTraining how{setting.training, Precision::Exact, {}, {}};
    how.training.optimizer.clip_grad_norm = 0.01;
    how.training.verified_steps = kSteps;
    const Calls before = calls_so_far();
    const CudaResult run = trained(Over::Nccl, HostOrder::Lazy, program, how);
    ASSERT_TRUE(run.finished());
    EXPECT_EQ(calls_so_far().scattered, before.scattered);
    EXPECT_EQ(calls_so_far().gathered, before.gathered);
    EXPECT_TRUE(run.verify->gradients.bitwise) << run.verify->gradients.worst;
    EXPECT_TRUE(run.verify->parameters.bitwise) << run.verify->parameters.worst;
  }
}

}  // namespace nccl_zero_test
}  // namespace pipewright::tests
