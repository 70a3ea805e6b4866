// What runs on exec/devices/cuda do beside a training from its beginning: go on from checkpoints
// and save them, evaluate, predict. In exact numerics the CPU's bits, whoever has saved.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/order/forward_order.hpp"
#include "core/plan/tied_stages.hpp"
#include "exec/checkpoint/checkpoint.hpp"
#include "exec/devices/cuda/run.hpp"
#include "planner/plans/data_parallel.hpp"
#include "tests/parity/forward_run.hpp"
#include "tests/parity/outcome.hpp"
#include "tests/support/command_runner.hpp"
#include "tests/support/cuda_under_test.hpp"

namespace pipewright::tests {
namespace {

using exec::Checkpoint;
using exec::RunMode;
using exec::cuda::CudaResult;
using exec::cuda::CudaTraining;
using exec::cuda::Precision;
using test::Folder;

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

Program two_replicas() {
  return lower(planner::replicate(planner::make_order("1f1b", {2, 4, 1, {}}), 2),
               comm_policy_preset("torch"), {.optimizer = true});
}

/// The 8 micro-batches of a step on one rank, on several, on two that hold all, and on replicas.
std::vector<Program> plans() {
  return {program_of({"gpipe", 1, 8, 1, "torch"}), program_of({"zb-h1", 4, 8, 1, "torch"}),
          program_of({"chimera", 2, 8, 1, "torch"}), two_replicas()};
}

/// A part of a training of six steps.
struct Part {
  const Program* program;
  Model model = small_transformer();
  exec::OptimizerKind optimizer = exec::OptimizerKind::AdamW;
  const Folder* from = nullptr;
  int steps = 3, every = 0;
  bool as_graph = false;
  int verified_steps = 0;
  Precision precision = Precision::Exact;
};

class CudaRuns : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    cudas_ = cudas_under_test(why);
    if (cudas_.empty()) GTEST_SKIP() << why;
  }

  /// On the CPU where there is no table.
  static exec::TrainingResult run(const pipewright_cuda* cuda, const Part& part,
                                  const Folder& into) {
    Setting setting(*part.program, part.model);
    std::optional<Checkpoint> start;
    if (part.from != nullptr) start = Checkpoint::open(part.from->path());
    exec::cpu::Training& training = setting.training;
    if (start) training.start = &*start;
    training.optimizer.kind = part.optimizer;
    training.verified_steps = part.verified_steps;
    training.options.numerics = exec::Numerics::Exact;
    training.save = exec::CheckpointSpec{into.path(), part.every, 0, {}};
    const CostTable costs = costs_of(*part.program, 1000);
    if (cuda == nullptr)
      return exec::cpu::run_on_cpu(*part.program, costs, training, {.steps = part.steps});
    return exec::cuda::run_on_cuda(*cuda, *part.program, costs,
                                   {training, part.precision, {}, {}, part.as_graph},
                                   {.steps = part.steps});
  }

  std::vector<NamedCuda> cudas_;
};

TEST_F(CudaRuns, GoOnWhereACpuStoppedAndTheOtherWay) {
  const std::vector<Program> all = plans();
  for (const exec::OptimizerKind optimizer :
       {exec::OptimizerKind::AdamW, exec::OptimizerKind::Sgd}) {
    const Folder whole;
    run(nullptr, {.program = &all[0], .optimizer = optimizer, .steps = 6}, whole);
    const Arrays expected = arrays_in(whole.path());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const pipewright_cuda* const gpu = cudas_[i % cudas_.size()].table;
      const Program &before = all[i], &behind = all[(i + 1) % all.size()];
      const std::pair<const pipewright_cuda*, const pipewright_cuda*> ways[] = {
          {gpu, nullptr}, {nullptr, gpu}, {gpu, gpu}};
      for (const auto& [first, second] : ways) {
        SCOPED_TRACE(std::to_string(i) + (first == nullptr ? ", saved by a CPU" : "") +
                     (second == nullptr ? ", loaded by a CPU" : ""));
        const Folder half, end;
        run(first, {.program = &before, .optimizer = optimizer}, half);
        const auto rest =
            run(second, {.program = &behind, .optimizer = optimizer, .from = &half}, end);
        EXPECT_EQ(rest.first_step, 3);
        EXPECT_EQ(arrays_in(end.path()), expected);
      }
    }
  }
}

TEST_F(CudaRuns, SaveATiedTableOnce) {
  const Model model = tied_transformer();
  const Order order = planner::make_order("1f1b", {2, 8, 1, {}});
  LowerOptions options{.optimizer = true};
  options.tied = tied_stages(model, equal_stages(model, lower(order, {})));
  const Program tied = lower(order, comm_policy_preset("torch"), options), one = plans()[0];
  const Folder whole, half, end;
  run(nullptr, {.program = &one, .model = model, .steps = 6}, whole);
  run(cudas_.back().table, {.program = &tied, .model = model}, half);
  run(cudas_.back().table, {.program = &tied, .model = model, .from = &half}, end);
  EXPECT_EQ(arrays_in(end.path()), arrays_in(whole.path()));
}

/// Replayed steps are saved and verified as the others are, and a run from a checkpoint too.
TEST_F(CudaRuns, SaveStepsOfAGraphAndAreVerifiedFromACheckpoint) {
  const Program program = program_of({"1f1b", 2, 8, 1, "torch"});
  for (const NamedCuda& cuda : cudas_) {
    SCOPED_TRACE(cuda.name);
    const Folder graph, enqueued, end;
    Part part{.program = &program, .steps = 5, .every = 2, .as_graph = true, .verified_steps = 5};
    const auto first = run(cuda.table, part, graph);
    EXPECT_TRUE(first.verify->parameters.bitwise) << first.verify->parameters.worst;
    part.as_graph = false;
    run(cuda.table, part, enqueued);
    for (const int step : {2, 4, 5}) {
      EXPECT_EQ(arrays_in(exec::checkpoint_folder(graph.path(), step)),
                arrays_in(exec::checkpoint_folder(enqueued.path(), step)))
          << step;
    }
    part.from = &graph;
    part.as_graph = true;
    const auto rest = run(cuda.table, part, end);
    ASSERT_EQ(rest.steps.size(), 5U);
    EXPECT_TRUE(rest.verify->gradients.bitwise) << rest.verify->gradients.worst;
    EXPECT_TRUE(rest.verify->parameters.bitwise) << rest.verify->parameters.worst;
  }
}

/// Running statistics are saved as weights are, move in a graph too, and take no moments.
TEST_F(CudaRuns, AnImageModelGoesOnWhereACpuStoppedAndTheOtherWay) {
  const Program program = program_of({"1f1b", 2, 8, 1, "torch"});
  const Model images = model_preset("resnet-tiny");
  const Folder whole;
  run(nullptr, {.program = &program, .model = images, .steps = 6}, whole);
  const Arrays expected = arrays_in(whole.path());
  const pipewright_cuda *const gpu = cudas_.back().table, *const cpu = nullptr;
  for (const bool as_graph : {false, true}) {
    for (const auto& [first, second] : {std::pair{gpu, cpu}, {cpu, gpu}}) {
      const Folder half, end;
      const auto part = [&](const pipewright_cuda* cuda) {
        return Part{.program = &program, .model = images, .as_graph = as_graph && cuda != nullptr};
      };
      run(first, part(first), half);
      Part rest = part(second);
      rest.from = &half;
      run(second, rest, end);
      EXPECT_EQ(arrays_in(end.path()), expected) << (first == nullptr ? "from a CPU" : "to a CPU");
    }
  }
}

/// What is saved are the weights themselves, and what layers read is rounded from them again.
TEST_F(CudaRuns, InBfloat16GoOnWithTheSameLosses) {
  const Program program = program_of({"1f1b", 2, 8, 1, "torch"});
  for (const NamedCuda& cuda : cudas_) {
    SCOPED_TRACE(cuda.name);
    const Folder whole, half, end;
    Part part{.program = &program, .steps = 6, .precision = Precision::Bfloat16};
    const auto all = run(cuda.table, part, whole);
    part.steps = 3;
    run(cuda.table, part, half);
    part.from = &half;
    const auto rest = run(cuda.table, part, end);
    for (std::size_t step = 0; step < 3; ++step)
      EXPECT_EQ(rest.steps[step].loss, all.steps[step + 3].loss);
    EXPECT_EQ(arrays_in(end.path()), arrays_in(whole.path()));
  }
}

// --- Forward only ---

Model classifier() {
  Model model = small_model();
  model.loss = LossKind::SoftmaxCrossEntropy;
  return model;
}

/// So many samples for steps of 4 micro-batches of 3: the last step is not full.
constexpr int kSamples = 50, kForwardSteps = 5;

class CudaForwards : public CudaRuns {
 protected:
  /// On the CPU where there is no table.
  static ForwardNumbers numbers_of(const NamedCuda* cuda, const Program& program,
                                   const Model& model, RunMode mode, Precision precision,
                                   bool as_graph = false) {
    ForwardNumbers numbers;
    exec::DataShape shape{.samples = kMicroBatchSize, .micro_batches = 4, .seed = 7};
    shape.shuffled = false;
    shape.with_answers = mode == RunMode::Evaluate;
    std::string text(static_cast<std::size_t>(model.sequence) * kSamples + 1, 'a');
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i * i % 23);
    const Folder folder;
    folder.write("text", text);
    const bool is_text = model.layers.front().kind == LayerKind::Embedding;
    const auto set = exec::make_data_set(
        model, shape, {is_text ? (folder.path() / "text").string() : "", "", ""}, kForwardSteps);
    exec::cpu::Training training;
    training.model = &model;
    training.stages = equal_stages(model, program);
    training.micro_batch_size = kMicroBatchSize;
    training.micro_batches = 4;
    training.seed = 7;
    training.data = set.source.get();
    training.mode = mode;
    training.options.numerics = exec::Numerics::Exact;
    if (cuda == nullptr) return serial_forwards(training, kForwardSteps);
    training.outputs = into(numbers);
    const CudaResult result =
        exec::cuda::run_on_cuda(*cuda->table, program, costs_of(program, 1000),
                                {training, precision, {}, {}, as_graph}, {.steps = kForwardSteps});
    EXPECT_TRUE(result.finished());
    EXPECT_FALSE(result.steps.back().loss.has_value());
    numbers.report = result.evaluation.value();
    return numbers;
  }
};

Program forwards_of(const RunCase& c) {
  const Order order = planner::make_order(c.schedule, {c.ranks, c.micro_batches, c.chunks, {}});
  return lower(forward_order(order), comm_policy_preset(c.policy), {});
}

TEST_F(CudaForwards, HaveTheSerialForwardsBits) {
  for (const Model& model : {small_transformer(), small_llama(), small_deepseek(), small_model(),
                             classifier(), model_preset("resnet-tiny")}) {
    const bool has_graph = exec::cuda::why_not_captured({}, model, Precision::Exact).empty();
    for (const RunMode mode : {RunMode::Evaluate, RunMode::Predict}) {
      const Program one = forwards_of({"gpipe", 1, 4, 1, "torch"});
      const ForwardNumbers expected = numbers_of(nullptr, one, model, mode, Precision::Exact);
      ASSERT_GT(expected.report.samples, 48);
      for (const RunCase& c :
           {RunCase{"gpipe", 1, 4, 1, "torch"}, RunCase{"zb-h1", 4, 4, 1, "torch"},
            RunCase{"zbv", 2, 4, 2, "torch"}, RunCase{"chimera", 2, 4, 1, "torch"},
            RunCase{"pipedream", 2, 4, 1, "torch"}}) {
        for (const bool as_graph : {false, true}) {
          if (as_graph && !has_graph) continue;
          SCOPED_TRACE(name_of(c) + (as_graph ? ", a graph" : ""));
          const NamedCuda& cuda = cudas_[as_graph ? 0 : cudas_.size() - 1];
          expect_equal(numbers_of(&cuda, forwards_of(c), model, mode, Precision::Exact, as_graph),
                       expected);
        }
      }
    }
  }
}

TEST_F(CudaForwards, InOtherPrecisionsStayWithinTheirRounding) {
  const Program program = forwards_of({"1f1b", 2, 4, 1, "torch"});
  // The latter's running statistics are floats in any precision.
  for (const Model& model : {small_transformer(), model_preset("resnet-tiny")}) {
    const auto expected =
        numbers_of(nullptr, program, model, RunMode::Evaluate, Precision::Exact).report;
    for (const NamedCuda& cuda : cudas_) {
      for (const auto& [precision, most] :
           {std::pair{Precision::Float32, 1e-5}, {Precision::Bfloat16, 1e-2}}) {
        const auto found = numbers_of(&cuda, program, model, RunMode::Evaluate, precision).report;
        EXPECT_EQ(found.rows, expected.rows);
        EXPECT_NEAR(*found.loss, *expected.loss, most * *expected.loss);
      }
    }
  }
}

/// Weights alone, and no activation longer than the next layer needs it.
TEST_F(CudaForwards, HoldNothingForABackward) {
  const Program program = forwards_of({"1f1b", 2, 4, 1, "torch"});
  const Setting setting(program, small_transformer());
  exec::cpu::Training training = setting.training;
  training.mode = RunMode::Evaluate;
  for (const NamedCuda& cuda : cudas_) {
    const auto memory =
        exec::cuda::run_on_cuda(*cuda.table, program, costs_of(program, 1000),
                                {training, Precision::Float32, {}, {}}, {.steps = 2})
            .memory;
    for (std::size_t r = 0; r < 2; ++r) {
      const StagePlan& plan = training.stages[r];
      const exec::cpu::Stage stage(setting.model, plan.first_layer, plan.end_layer, 1, 1, 7);
      std::int64_t bytes = 0;
      for (const auto& view : stage.parameters())
        bytes += 4 * static_cast<std::int64_t>((view.value.size() + 63) / 64 * 64);
      // A word of each more would say whether its gradient is a number.
      EXPECT_LE(memory[r].weights,
                bytes + 4 * static_cast<std::int64_t>(stage.parameters().size() + 1));
      EXPECT_GE(memory[r].weights, bytes);
    }
  }
}

}  // namespace
}  // namespace pipewright::tests
