// Replicas that share the update out (ZeRO 1) on exec/devices/cuda: the serial run's bits in exact
// numerics, a part each of what the optimizer keeps, and checkpoints that any plan goes on from.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "core/plan/tied_stages.hpp"
#include "exec/checkpoint/checkpoint.hpp"
#include "exec/devices/cuda/run.hpp"
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

/// A step has 12 micro-batches, whatever the replicas.
Program shared_out(const char* schedule, int replicas, int groups, const Model& model,
                   bool clips = false) {
  const int chunks = std::string(schedule) == "interleaved" ? 2 : 1;
  const Order order =
      planner::replicate(planner::make_order(schedule, {2, 12 / replicas, chunks, {}}), replicas);
  LowerOptions options{.clips = clips, .optimizer = true, .sharded = true};
  options.sharding = {.zero = 1, .groups = groups};
  options.tied = tied_stages(model, equal_stages(model, lower(order, {})));
  return lower(order, comm_policy_preset("torch"), options);
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

  std::vector<NamedCuda> cudas_;
};

/// Three replicas' parts are no whole number of parameters, and their last one is smaller.
TEST_F(CudaZero, HasTheSerialRunsBits) {
  const std::pair<int, int> replicas[] = {{2, 1}, {3, 1}, {4, 2}};  // and groups
  for (const Model& model : {small_llama(), tied_transformer()}) {
    for (const char* schedule : {"1f1b", "zb-h1", "interleaved"}) {
      for (const auto& [count, groups] : replicas) {
        for (const double clip : {0.0, 0.01}) {
          SCOPED_TRACE(std::string(schedule) + ", " + std::to_string(count) + " replicas");
          const Program program = shared_out(schedule, count, groups, model, clip > 0);
          const Setting setting(program, model);
          CudaTraining how{setting.training, Precision::Exact, {}, {}};
          how.training.verified_steps = kSteps;
          how.training.optimizer.clip_grad_norm = clip;
          const CudaResult result = run(cudas_[count % cudas_.size()], program, how);
          ASSERT_TRUE(result.verify.has_value());
          EXPECT_TRUE(result.verify->gradients.bitwise) << result.verify->gradients.worst;
          EXPECT_TRUE(result.verify->parameters.bitwise) << result.verify->parameters.worst;
        }
      }
    }
  }
}

/// Without being looked at, too: then gradients stay where they are.
TEST_F(CudaZero, HasTheLossesOfTheSerialRun) {
  const Program program = shared_out("1f1b", 2, 1, small_transformer());
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

/// 8 and 8/n bytes a parameter in float32, 6 and 12/n in bfloat16, whose weights themselves are the
/// replicas' part too.
TEST_F(CudaZero, EachReplicaHoldsItsPart) {
  const Model model = small_transformer();
  for (const int replicas : {2, 4}) {
    const Program program = shared_out("1f1b", replicas, 1, model);
    const Setting setting(program, model);
    for (const auto& [precision, whole, shared] :
         {std::tuple{Precision::Float32, 8, 8}, {Precision::Bfloat16, 6, 12}}) {
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
              << "rank " << r;
        }
      }
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
  const Program shared = shared_out("1f1b", 3, 1, small_transformer()),
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

TEST_F(CudaZero, InBfloat16GoesOnWithTheSameLosses) {
  const Program shared = shared_out("1f1b", 2, 1, small_transformer());
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

}  // namespace
}  // namespace pipewright::tests
