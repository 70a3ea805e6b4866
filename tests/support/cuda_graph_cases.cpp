// A training step as one CUDA graph: what the replayed steps compute, and when, is what the same
// steps would have computed one by one.
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/plan/tied_stages.hpp"
#include "exec/devices/cuda/run.hpp"
#include "planner/plans/data_parallel.hpp"
#include "tests/parity/outcome.hpp"
#include "tests/parity/update_cases.hpp"
#include "tests/support/cuda_under_test.hpp"

namespace pipewright::tests {
namespace {

using exec::cuda::CudaResult;
using exec::cuda::CudaTraining;
using exec::cuda::Precision;

constexpr int kReplays = 3, kAllSteps = exec::cuda::kLeastCapturedSteps + kReplays;

CudaTraining as_graph(const Setting& setting) {
  CudaTraining how{setting.training, Precision::Exact, {}, {}, true};
  how.training.verified_steps = kAllSteps;
  return how;
}

class CudaGraph : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    cudas_ = cudas_under_test(why);
    if (cudas_.empty()) GTEST_SKIP() << why;
  }
  static CudaResult run(const NamedCuda& cuda, const Program& program, const CudaTraining& how) {
    return exec::cuda::run_on_cuda(*cuda.table, program, costs_of(program, 1000), how,
                                   {.steps = kAllSteps});
  }
  void expect_serial_bits(const Program& program, const CudaTraining& how) const {
    exec::cpu::Training on_cpu = how.training;
    on_cpu.options.numerics = exec::Numerics::Exact;
    exec::SerialRun serial(*on_cpu.model, {.micro_batch_size = on_cpu.micro_batch_size,
                                           .micro_batches = on_cpu.micro_batches,
                                           .seed = on_cpu.seed,
                                           .optimizer = on_cpu.optimizer,
                                           .options = on_cpu.options});
    std::vector<double> losses;
    for (int step = 0; step < kAllSteps; ++step) losses.push_back(serial.step(*on_cpu.data, step));
    for (const NamedCuda& cuda : cudas_) {
      SCOPED_TRACE(cuda.name);
      const CudaResult result = run(cuda, program, how);
      ASSERT_TRUE(result.finished());
      ASSERT_TRUE(result.verify.has_value());
      EXPECT_TRUE(result.verify->gradients.bitwise) << result.verify->gradients.worst;
      EXPECT_TRUE(result.verify->parameters.bitwise) << result.verify->parameters.worst;
      ASSERT_EQ(result.steps.size(), losses.size());
      for (std::size_t step = 0; step < losses.size(); ++step)
        EXPECT_EQ(result.steps[step].loss, losses[step]) << "step " << step;
    }
  }
  void expect_refusal(const Program& program, const CudaTraining& how,
                      const std::string& what) const {
    for (const NamedCuda& cuda : cudas_) {
      try {
        run(cuda, program, how);
        ADD_FAILURE() << "was captured";
      } catch (const InputError& error) {
        EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
      }
    }
  }

  /// A captured step has the bits of one that is not, and up to the first that is replayed floats
  /// are those of the serial run but for the order in which they are added up.
  void expect_the_same_as_steps(const Program& program, CudaTraining how) const {
    how.precision = Precision::Float32;
    how.training.optimizer.kind = exec::OptimizerKind::Sgd;  // AdamW makes much of rounding
    how.training.verified_steps = exec::cuda::kLeastCapturedSteps + 1;
    for (const NamedCuda& cuda : cudas_) {
      SCOPED_TRACE(cuda.name);
      const CudaResult replayed = run(cuda, program, how);
      how.as_graph = false;
      const CudaResult enqueued = run(cuda, program, how);
      how.as_graph = true;
      for (const CudaResult* result : {&replayed, &enqueued}) {
        ASSERT_TRUE(result->finished());
        ASSERT_TRUE(result->verify.has_value());
        // 1.2e-6 to 2.2e-6, by how the CPU at hand adds up.
        EXPECT_LE(result->verify->gradients.norm_rel, 4e-6) << result->verify->gradients.worst;
        EXPECT_LE(result->verify->parameters.norm_rel, 4e-6) << result->verify->parameters.worst;
      }
      EXPECT_EQ(replayed.verify->gradients.norm_rel, enqueued.verify->gradients.norm_rel);
      EXPECT_EQ(replayed.verify->parameters.norm_rel, enqueued.verify->parameters.norm_rel);
      ASSERT_EQ(replayed.steps.size(), enqueued.steps.size());
      for (std::size_t step = 0; step < replayed.steps.size(); ++step)
        EXPECT_EQ(replayed.steps[step].loss, enqueued.steps[step].loss) << "step " << step;
    }
  }

  std::vector<NamedCuda> cudas_;
};

TEST_F(CudaGraph, ReplayedStepsHaveTheSerialRunsBits) {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "zbv", "chimera"}) {
    const int chunks = std::string(schedule) == "interleaved" || std::string(schedule) == "zbv";
    for (const int ranks : {2, 4}) {
      SCOPED_TRACE(schedule + std::to_string(ranks));
      const Program program = program_of({schedule, ranks, 8, 1 + chunks, "torch"});
      if (program.has_collectives()) continue;  // refused: below
      const Setting setting(program);
      expect_serial_bits(program, as_graph(setting));
    }
  }
}

TEST_F(CudaGraph, EverySynchronousScheduleIsReplayedWithTheSerialRunsBits) {
  int replayed = 0;
  for (const planner::Schedule* schedule : synchronous_schedules()) {
    const std::optional<Program> program = program_of(*schedule, 4);
    if (!program || program->has_collectives()) continue;
    SCOPED_TRACE(schedule->name);
    const Setting setting(*program);
    expect_serial_bits(*program, as_graph(setting));
    ++replayed;
  }
  EXPECT_GT(replayed, 10);
}

TEST_F(CudaGraph, ATransformerIsReplayedWithTheSerialRunsBits) {
  for (const exec::OptimizerKind kind : {exec::OptimizerKind::Sgd, exec::OptimizerKind::AdamW}) {
    const Program program = program_of({"1f1b", 2, 4, 1, "torch"});
    const Setting setting(program, small_transformer());
    CudaTraining how = as_graph(setting);
    how.training.optimizer.kind = kind;
    how.training.options.recompute =
        recompute_of(setting.model, {RecomputeSpec::Kind::Selective, {}});
    expect_serial_bits(program, how);
  }
}

/// The norm of all ranks' gradients is made on the GPUs.
TEST_F(CudaGraph, ClippedStepsAreReplayedWithTheSerialRunsBits) {
  for (const int ranks : {1, 2, 4}) {
    SCOPED_TRACE(ranks);
    const Order order = planner::make_order(ranks == 1 ? "gpipe" : "1f1b", {ranks, 4, 1, {}});
    const Program program =
        lower(order, comm_policy_preset("torch"), {.clips = true, .optimizer = true});
    const Setting setting(program, small_transformer());
    CudaTraining how = as_graph(setting);
    how.training.optimizer.kind = exec::OptimizerKind::Sgd;  // AdamW hides a factor
    how.training.optimizer.clip_grad_norm = 0.01;
    expect_serial_bits(program, how);
  }
}

TEST_F(CudaGraph, ReplicasAreReplayedAsTheyAreEnqueued) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "interleaved"}) {
    for (const bool clips : {false, true}) {
      SCOPED_TRACE(schedule);
      const int chunks = std::string(schedule) == "interleaved" ? 2 : 1;
      const Order order = planner::replicate(planner::make_order(schedule, {2, 4, chunks, {}}), 2);
      const Program program =
          lower(order, comm_policy_preset("torch"), {.clips = clips, .optimizer = true});
      const Setting setting(program, small_transformer());
      CudaTraining how = as_graph(setting);
      how.training.optimizer.clip_grad_norm = clips ? 0.01 : 0;
      expect_the_same_as_steps(program, how);
    }
  }
}

/// Running statistics are summed with the weights.
TEST_F(CudaGraph, ReplicasOfAnImageModelAreReplayedAsTheyAreEnqueued) {
  const Order order = planner::replicate(planner::make_order("1f1b", {2, 4, 1, {}}), 2);
  const Program program = lower(order, comm_policy_preset("torch"), {.optimizer = true});
  const Setting setting(program, model_preset("resnet-tiny"));
  expect_the_same_as_steps(program, as_graph(setting));
}

/// The tables are on two ranks, on one, and on replicas of both.
TEST_F(CudaGraph, ATiedHeadIsReplayedAsItIsEnqueued) {
  const Model model = tied_transformer();
  for (const auto& [schedule, replicas] :
       {std::pair("1f1b", 1), {"zbv", 1}, {"1f1b", 2}, {"zbv", 2}}) {
    SCOPED_TRACE(schedule + std::to_string(replicas));
    const int chunks = std::string(schedule) == "zbv" ? 2 : 1;
    const Order order =
        planner::replicate(planner::make_order(schedule, {2, 4, chunks, {}}), replicas);
    LowerOptions options{.clips = true, .optimizer = true};
    options.tied = tied_stages(model, equal_stages(model, lower(order, {})));
    const Program program = lower(order, comm_policy_preset("torch"), options);
    const Setting setting(program, model);
    CudaTraining how = as_graph(setting);
    how.training.optimizer.clip_grad_norm = 0.01;
    expect_the_same_as_steps(program, how);
  }
}

TEST_F(CudaGraph, OneRankIsReplayedToo) {
  const Program program = program_of({"gpipe", 1, 4, 1, "torch"});
  const Setting setting(program, small_transformer());
  expect_serial_bits(program, as_graph(setting));
}

TEST_F(CudaGraph, TimesOfReplayedStepsKeepTheOrderOfTheProgram) {
  const Program program = program_of({"1f1b", 4, 8, 1, "torch"});
  const Setting setting(program);
  for (const NamedCuda& cuda : cudas_) {
    SCOPED_TRACE(cuda.name);
    CudaTraining how = as_graph(setting);
    how.training.verified_steps = 0;
    const CudaResult result = run(cuda, program, how);
    EXPECT_GE(result.timeline_step, exec::cuda::kLeastCapturedSteps)
        << "the step that was captured is no step to show";
    const Timeline& timeline = result.timeline;
    constexpr std::int64_t kResolution = 2'000;  // of events
    for (InstructionId id = 0; id < program.code.size(); ++id) {
      const Instruction& in = program.code[id];
      ASSERT_GE(timeline.end[id], timeline.start[id]) << program.text(id);
      if (is_transfer(in.kind) || in.link == kNoInstruction) continue;
      EXPECT_GE(timeline.end[id] + kResolution, timeline.end[in.link]) << program.text(id);
    }
  }
}

TEST_F(CudaGraph, WhatMakesTheHostWaitWithinAStepIsRefused) {
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  const Program replicas =
      lower(planner::replicate(order, 2), comm_policy_preset("torch"), {.optimizer = true});
  const Setting of_replicas(replicas);
  expect_refusal(replicas, as_graph(of_replicas), "the gradients of replicas");

  const Model model = tied_transformer();
  LowerOptions options{.optimizer = true};
  options.tied = tied_stages(model, equal_stages(model, lower(order, {})));
  const Program tied = lower(order, comm_policy_preset("torch"), options);
  const Setting of_tied(tied, model);
  expect_refusal(tied, as_graph(of_tied), "tied head");

  const Program sharded = lower(planner::replicate(order, 2), comm_policy_preset("torch"),
                                {.optimizer = true, .sharded = true});
  const Setting of_sharded(sharded);
  CudaTraining how = as_graph(of_sharded);
  how.precision = Precision::Float32;
  expect_refusal(sharded, how, "replicas");
}

TEST_F(CudaGraph, ARunOfOneStepHasNothingToCapture) {
  const Program program = program_of({"1f1b", 2, 4, 1, "torch"});
  const Setting setting(program);
  for (const NamedCuda& cuda : cudas_)
    EXPECT_THROW(exec::cuda::run_on_cuda(*cuda.table, program, costs_of(program, 1000),
                                         as_graph(setting), {.steps = 1}),
                 InputError);
}

TEST_F(CudaGraph, ARunThatEndsWithItsCaptureIsWhole) {
  const Program program = program_of({"1f1b", 2, 4, 1, "torch"});
  const Setting setting(program);
  for (const NamedCuda& cuda : cudas_) {
    const auto result = exec::cuda::run_on_cuda(*cuda.table, program, costs_of(program, 1000),
                                                as_graph(setting), {.steps = 2});
    ASSERT_TRUE(result.verify.has_value());
    EXPECT_TRUE(result.verify->parameters.bitwise);
  }
}

}  // namespace
}  // namespace pipewright::tests
