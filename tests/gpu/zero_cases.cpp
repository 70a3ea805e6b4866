// Replicas that divide the update, gradients and weights (ZeRO 1 to 3) on exec/devices/cuda: the
// serial run's bits in exact numerics, a part each of what is divided, and checkpoints that any
// plan goes on from.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "core/model/transformer.hpp"
#include "core/plan/tied_stages.hpp"
#include "exec/checkpoint/checkpoint.hpp"
#include "exec/devices/cuda/run.hpp"
#include "planner/memory/memory.hpp"
#include "planner/plans/data_parallel.hpp"
#include "tests/parity/outcome.hpp"
#include "tests/support/command_runner.hpp"
#include "tests/support/cuda_under_test.hpp"

namespace pipewright::tests {
namespace {

using exec::Checkpoint;
using exec::cuda::CudaResult;
using exec::cuda::CudaTraining;
using exec::cuda::Precision;
using test::Folder;

struct Way {
  const char* schedule = "1f1b";
  int replicas = 2, groups = 1, zero = 1, ahead = 0;
  bool clips = false;
};

/// A step has 12 micro-batches, whatever the replicas.
Program shared_out(const Way& way, const Model& model) {
  const auto& [schedule, replicas, groups, zero, ahead, clips] = way;
  const int chunks = std::string(schedule) == "interleaved" ? 2 : 1;
  const Order order =
      planner::replicate(planner::make_order(schedule, {2, 12 / replicas, chunks, {}}), replicas);
  LowerOptions options{.clips = clips, .optimizer = true, .sharded = true};
  options.sharding = {.zero = zero, .groups = groups, .ahead = ahead};
  options.tied = tied_stages(model, equal_stages(model, lower(order, {})));
  return lower(order, comm_policy_preset("torch"), options);
}

Model wide_model() {
  Model model;
  model.sequence = 4;
  const TransformerShape shape{
      .hidden = 64, .layers = 4, .heads = 2, .ffn = 256, .vocabulary = 256, .sequence = 4};
  model.layers = expand(shape);
  return model;
}

/// Of two replicas.
std::vector<RankFigures> planned_peaks(const Setting& setting, const Program& program, int zero) {
  CostTable costs = costs_of(program, 1000);
  const std::vector<StagePlan>& stages = setting.training.stages;
  costs.memory = planner::memory_of(setting.model, stages, kMicroBatchSize, "adamw");
  for (std::size_t s = 0; s < stages.size(); ++s)
    planner::divide(costs.memory[s], planner::state_of(setting.model, stages[s], "adamw"),
                    {.zero = zero, .count = 2, .sharing = 2});
  return peaks_of(program, costs);
}

class CudaZero : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    cudas_ = cudas_under_test(why);
    if (cudas_.empty()) GTEST_SKIP() << why;
  }
  static CudaResult run(const NamedCuda& cuda, const Program& program, const CudaTraining& how) {
    return exec::cuda::run_on_cuda(*cuda.table, program, costs_of(program, 1000), how,
                                   {.steps = kSteps});
  }

  void expect_serial_bits(const Way& way, const Model& model) {
    SCOPED_TRACE(std::string(way.schedule) + ", " + std::to_string(way.replicas) +
                 " replicas, ZeRO " + std::to_string(way.zero));
    const Program program = shared_out(way, model);
    const Setting setting(program, model);
    CudaTraining how{setting.training, Precision::Exact, {}, {}};
    how.training.verified_steps = kSteps;
    how.training.optimizer.clip_grad_norm = way.clips ? 0.01 : 0;
    const NamedCuda& cuda = cudas_[static_cast<std::size_t>(way.replicas) % cudas_.size()];
    const CudaResult result = run(cuda, program, how);
    ASSERT_TRUE(result.verify.has_value());
    EXPECT_GT(result.verify->compared, 0);
    EXPECT_TRUE(result.verify->gradients.bitwise) << result.verify->gradients.worst;
    EXPECT_TRUE(result.verify->parameters.bitwise) << result.verify->parameters.worst;
  }

  std::vector<NamedCuda> cudas_;
};

/// Three replicas' parts are no whole number of parameters, and their last one is smaller.
constexpr std::pair<int, int> kReplicas[] = {{2, 1}, {3, 1}, {4, 2}};  // and groups

TEST_F(CudaZero, HasTheSerialRunsBits) {
  for (const Model& model : {small_llama(), tied_transformer()}) {
    for (const char* schedule : {"1f1b", "zb-h1", "interleaved"}) {
      for (const auto& [replicas, groups] : kReplicas) {
        for (const bool clips : {false, true})
          expect_serial_bits({schedule, replicas, groups, 1, 0, clips}, model);
      }
    }
  }
}

/// Interleaved stages are gathered and let go of, and their gradients summed, many times a step.
TEST_F(CudaZero, DividedGradientsAndWeightsHaveTheSerialRunsBits) {
  for (const int zero : {2, 3}) {
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "interleaved"}) {
      for (const auto& [replicas, groups] : kReplicas) {
        expect_serial_bits({schedule, replicas, groups, zero, 0, replicas == 3}, small_llama());
        if (replicas < 4)
          expect_serial_bits({schedule, replicas, groups, zero, 0, replicas == 2},
                             tied_transformer());
      }
    }
  }
}

TEST_F(CudaZero, WeightsThatAreGatheredAheadAreTheSame) {
  for (const int ahead : {1, 2}) expect_serial_bits({"interleaved", 2, 1, 3, ahead}, small_llama());
}

/// Running statistics are no weights: each replica has all of them.
TEST_F(CudaZero, ImageModelsHaveTheSerialRunsBits) {
  const Model model = model_preset("resnet-tiny");
  for (const int zero : {1, 2, 3}) expect_serial_bits({"1f1b", 2, 1, zero, 0, true}, model);
  expect_serial_bits({"interleaved", 2, 1, 3}, model);
}

/// Without being looked at, too: then gradients stay where they are.
TEST_F(CudaZero, HasTheLossesOfTheSerialRun) {
  for (const int zero : {1, 2, 3}) {
    const Program program = shared_out({.zero = zero}, small_transformer());
    const Setting setting(program, small_transformer());
    exec::cpu::Training on_cpu = setting.training;
    on_cpu.options.numerics = exec::Numerics::Exact;
    const Outcome expected = serial(on_cpu);
    for (const NamedCuda& cuda : cudas_) {
      const CudaResult result = run(cuda, program, {setting.training, Precision::Exact, {}, {}});
      for (std::size_t step = 0; step < kSteps; ++step)
        EXPECT_EQ(result.steps[step].loss, expected.losses[step]) << step;
    }
  }
}

/// Bytes a parameter that every replica has, and that they have a part each of. In bfloat16 the
/// weights themselves are among these, and layers read a rounded copy.
struct BytesOfParameter {
  int zero;
  Precision precision;
  int whole, shared;
};
constexpr BytesOfParameter kBytes[] = {
    {1, Precision::Float32, 8, 8},  {1, Precision::Bfloat16, 6, 12},
    {2, Precision::Float32, 4, 12}, {2, Precision::Bfloat16, 2, 16},
    {3, Precision::Float32, 0, 16}, {3, Precision::Bfloat16, 0, 18}};

TEST_F(CudaZero, EachReplicaHoldsItsPart) {
  const Model model = small_transformer();
  for (const int replicas : {2, 4}) {
    for (const auto& [zero, precision, whole, shared] : kBytes) {
      const Program program = shared_out({.replicas = replicas, .zero = zero}, model);
      const Setting setting(program, model);
      for (const NamedCuda& cuda : cudas_) {
        const auto memory = run(cuda, program, {setting.training, precision, {}, {}}).memory;
        for (std::size_t r = 0; r < memory.size(); ++r) {
          const StagePlan& plan = setting.training.stages[r % 2];
          const exec::cpu::Stage stage(model, plan.first_layer, plan.end_layer, 1, 1, 7);
          std::int64_t floats = 0;
          for (const auto& view : stage.parameters())
            floats += static_cast<std::int64_t>((view.value.size() + 63) / 64 * 64);
          const std::int64_t bytes = floats * whole + floats * shared / replicas;
          EXPECT_NEAR(static_cast<double>(memory[r].weights), static_cast<double>(bytes),
                      64.0 * 20 * replicas)
              << "ZeRO " << zero << ", rank " << r;
        }
      }
    }
  }
}

/// So wide that weights decide.
TEST_F(CudaZero, RanksHoldWhatThePlanSays) {
  for (const char* schedule : {"1f1b", "interleaved"}) {
    for (const int bytes : {4, 2}) {
      Model model = wide_model();
      model.bytes_per_element = bytes;
      for (const int zero : {1, 2, 3}) {
        SCOPED_TRACE(std::string(schedule) + ", ZeRO " + std::to_string(zero) + ", " +
                     std::to_string(bytes) + " bytes");
        const Program program = shared_out({.schedule = schedule, .zero = zero}, model);
        const Setting setting(program, model);
        const auto planned = planned_peaks(setting, program, zero);
        const Precision precision = bytes == 4 ? Precision::Float32 : Precision::Bfloat16;
        const auto memory =
            run(cudas_.front(), program, {setting.training, precision, {}, {}}).memory;
        for (std::size_t r = 0; r < memory.size(); ++r) {
          const auto held = static_cast<double>(memory[r].peak_activations + memory[r].weights);
          EXPECT_NEAR(static_cast<double>(planned[r].peak_bytes) / held, 1, 0.05) << "rank " << r;
        }
      }
    }
  }
}

/// Whole arrays of a rank's stages have one block, also where stages are of several sizes.
TEST_F(CudaZero, WhatRanksHaveOfTheGpuFalls) {
  const Model model = wide_model();
  for (const Precision precision : {Precision::Float32, Precision::Bfloat16}) {
    std::int64_t before = INT64_MAX;
    for (const int zero : {1, 2, 3}) {
      const Program program =
          shared_out({.schedule = "interleaved", .replicas = 4, .zero = zero}, model);
      const Setting setting(program, model);
      std::int64_t reserved = 0;
      for (const auto& rank :
           run(cudas_.front(), program, {setting.training, precision, {}, {}}).memory)
        reserved = std::max(reserved, rank.reserved);
      EXPECT_LT(reserved, before) << "ZeRO " << zero;
      before = reserved;
    }
  }
}

using Arrays = std::map<std::pair<std::string, std::string>, std::vector<float>>;

Arrays arrays_in(const std::filesystem::path& folder) {
  const Checkpoint checkpoint = Checkpoint::open(folder);
  Arrays arrays;
  for (const auto& [name, size] : checkpoint.sizes()) {
    std::vector<float>& array = arrays[name];
    array.resize(static_cast<std::size_t>(size));
    checkpoint.read(name.first, name.second, array);
  }
  return arrays;
}

struct Part {
  const Program& program;
  const Folder& into;
  const Folder* from = nullptr;
  Precision precision = Precision::Exact;
  int steps = kSteps;
};

/// On the CPU where there is no table.
exec::StepLog steps_of(const pipewright_cuda* cuda, const Part& part) {
  Setting setting(part.program, small_transformer());
  std::optional<Checkpoint> start;
  if (part.from != nullptr) start = Checkpoint::open(part.from->path());
  if (start) setting.training.start = &*start;
  setting.training.options.numerics = exec::Numerics::Exact;
  setting.training.save = exec::CheckpointSpec{part.into.path(), 0, 0, {}};
  const CostTable costs = costs_of(part.program, 1000);
  if (cuda == nullptr)
    return exec::cpu::run_on_cpu(part.program, costs, setting.training, {.steps = part.steps})
        .steps;
  return exec::cuda::run_on_cuda(*cuda, part.program, costs,
                                 {setting.training, part.precision, {}, {}}, {.steps = part.steps})
      .steps;
}

TEST_F(CudaZero, GoesOnFromAndIsGoneOnFromByOthers) {
  for (const int zero : {1, 2, 3}) {
    const Program shared = shared_out({.replicas = 3, .zero = zero}, small_transformer()),
                  one = program_of({"gpipe", 1, 12, 1, "torch"});
    const Folder whole;
    steps_of(nullptr, {one, whole, nullptr, Precision::Exact, 2 * kSteps});
    const Arrays expected = arrays_in(whole.path());
    for (const NamedCuda& cuda : cudas_) {
      const struct {
        const pipewright_cuda *first, *second;
        const Program &before, &behind;
      } ways[] = {{cuda.table, nullptr, shared, one},
                  {nullptr, cuda.table, one, shared},
                  {cuda.table, cuda.table, shared, shared},
                  {nullptr, cuda.table, shared, one}};
      for (const auto& way : ways) {
        const Folder half, end;
        steps_of(way.first, {way.before, half});
        steps_of(way.second, {way.behind, end, &half});
        EXPECT_EQ(arrays_in(end.path()), expected) << cuda.name << " " << &way - ways;
      }
    }
  }
}

TEST_F(CudaZero, InBfloat16GoesOnWithTheSameLosses) {
  for (const int zero : {1, 2, 3}) {
    const Program shared = shared_out({.zero = zero}, small_transformer());
    for (const NamedCuda& cuda : cudas_) {
      const Folder whole, half, end;
      const auto all =
          steps_of(cuda.table, {shared, whole, nullptr, Precision::Bfloat16, 2 * kSteps});
      steps_of(cuda.table, {shared, half, nullptr, Precision::Bfloat16});
      const auto rest = steps_of(cuda.table, {shared, end, &half, Precision::Bfloat16});
      for (std::size_t step = 0; step < kSteps; ++step)
        EXPECT_EQ(rest[step].loss, all[step + kSteps].loss) << cuda.name << ", step " << step;
      EXPECT_EQ(arrays_in(end.path()), arrays_in(whole.path())) << cuda.name;
    }
  }
}

}  // namespace
}  // namespace pipewright::tests
