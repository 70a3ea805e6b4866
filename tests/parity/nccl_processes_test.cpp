// NCCL's transport between processes: threads in their place, each with a link of its own over a
// wire in memory, and a GPU of the host's table. One result, one timeline, the serial run's bits.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/base/error.hpp"
#include "core/plan/tied_stages.hpp"
#include "exec/base/waiting.hpp"
#include "exec/collectives/process/job_groups.hpp"
#include "exec/transports/nccl/run.hpp"
#include "exec/transports/process/link.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/parity/divided/divided_forwards.hpp"
#include "tests/parity/divided/divided_program.hpp"
#include "tests/parity/small_models.hpp"
#include "tests/parity/training_setting.hpp"
#include "tests/support/host_cuda.hpp"
#include "tests/support/host_nccl.hpp"
#include "tests/support/memory_wire.hpp"

namespace pipewright::tests {
namespace nccl_processes_test {

using exec::cuda::CudaResult;
using exec::cuda::CudaTraining;
using exec::cuda::Precision;

constexpr int kSteps = 3;
constexpr double kMostApart = 2e-6;  // relative norm, of float32

/// Each process's result; `cudas` is by process.
std::vector<CudaResult> run_everywhere(const Program& program, const CudaTraining& how,
                                       const std::vector<const pipewright_cuda*>& cudas) {
  test::MemoryHub hub(program.ranks(), true);
  const pipewright_nccl& nccl = host_nccl(*cudas.front());
  std::vector<CudaResult> results(static_cast<std::size_t>(program.ranks()));
  std::vector<std::jthread> processes;
  for (int p = 0; p < program.ranks(); ++p) {
    processes.emplace_back([&, p] {
      exec::mpi::Link link(std::make_unique<test::MemoryWire>(hub, p));
      exec::collectives::JobGroups groups(link);
      results[static_cast<std::size_t>(p)] = exec::nccl::run_on_nccl(
          *cudas[static_cast<std::size_t>(p)], nccl, program, costs_of(program, 1000), how,
          {.steps = kSteps}, link, p, [&](std::span<const RankId> ranks, const auto& look) {
            return groups.group(ranks, look);
          });
      EXPECT_TRUE(link.close());
    });
  }
  processes.clear();
  return results;
}

std::vector<CudaResult> run_everywhere(const Program& program, const Setting& setting,
                                       HostOrder order, Precision precision = Precision::Exact) {
  CudaTraining how{setting.training, precision, {}, {}};
  // Behind an update of AdamW rounding is no longer small.
  how.training.verified_steps = precision == Precision::Exact ? kSteps : 1;
  return run_everywhere(program, how,
                        {static_cast<std::size_t>(program.ranks()), &host_cuda(order)});
}

void expect_one_run(const Program& program, const Setting& setting) {
  for (const HostOrder order : {HostOrder::Eager, HostOrder::Lazy, HostOrder::Shuffled}) {
    const int before = host_nccl_calls();
    const auto results = run_everywhere(program, setting, order);
    EXPECT_GE(host_nccl_calls(), before);
    for (const CudaResult& result : results) {
      ASSERT_TRUE(result.finished());
      ASSERT_TRUE(result.verify.has_value());
      EXPECT_TRUE(result.verify->gradients.bitwise) << result.verify->gradients.worst;
      EXPECT_TRUE(result.verify->parameters.bitwise) << result.verify->parameters.worst;
      EXPECT_GT(result.verify->compared, 0);
      ASSERT_EQ(result.steps.size(), results.front().steps.size());
      for (std::size_t step = 0; step < result.steps.size(); ++step)
        EXPECT_EQ(result.steps[step].loss, results.front().steps[step].loss);
      EXPECT_EQ(result.enqueued_ns, results.front().enqueued_ns);
      EXPECT_EQ(result.peak_bytes, results.front().peak_bytes);
      EXPECT_EQ(result.timeline.end, results.front().timeline.end) << "not one timeline";
    }
    const Timeline& timeline = results.front().timeline;
    EXPECT_EQ(results.front().enqueued_ns.size(), static_cast<std::size_t>(program.ranks()));
    for (InstructionId id = 0; id < program.code.size(); ++id) {
      EXPECT_NE(timeline.end[id], kNotEnded) << program.text(id);
      EXPECT_GE(timeline.end[id], timeline.start[id]) << program.text(id);
    }
  }
}

void expect_one_run(const Program& program) { expect_one_run(program, Setting(program)); }

TEST(NcclProcesses, TrainTogetherWithTheSerialRunsBits) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    SCOPED_TRACE(schedule);
    expect_one_run(lower(planner::make_order(schedule, {2, 4, 1, {}}), {.post = Post::Deferred},
                         {.optimizer = true}));
  }
}

TEST(NcclProcesses, ReplicasAddTheirGradientsByWayOfTheHosts) {
  expect_one_run(lower(planner::replicate(planner::make_order("gpipe", {1, 2, 1, {}}), 2),
                       {.post = Post::Deferred}, {.optimizer = true}));
}

/// What is compared is put together from the parts that processes have.
TEST(NcclProcesses, ReplicasDivideGradientsAndWeights) {
  for (const int zero : {2, 3}) {
    const Program program =
        lower(planner::replicate(planner::make_order("gpipe", {1, 2, 1, {}}), 2),
              {.post = Post::Deferred},
              {.clips = true, .optimizer = true, .sharded = true, .sharding = {.zero = zero}});
    Setting setting(program);
    setting.training.optimizer.clip_grad_norm = 0.01;
    expect_one_run(program, setting);
    setting.training.optimizer.kind = exec::OptimizerKind::Sgd;
    const int before = host_nccl_scattered_sums();
    const auto results = run_everywhere(program, setting, HostOrder::Lazy, Precision::Float32);
    EXPECT_EQ(host_nccl_scattered_sums() - before, 2 * kSteps);
    for (const CudaResult& result : results) {
      ASSERT_TRUE(result.finished());
      EXPECT_LE(result.verify->gradients.norm_rel, kMostApart) << result.verify->gradients.worst;
      EXPECT_EQ(result.steps.back().loss, results.front().steps.back().loss);
    }
  }
}

/// In floats: NCCL sums, and all processes come to the same.
TEST(NcclProcesses, ReplicasInFloatsAddTheirGradientsByNccl) {
  const Program program = lower(planner::replicate(planner::make_order("gpipe", {1, 2, 1, {}}), 2),
                                {.post = Post::Deferred}, {.optimizer = true});
  const Setting setting(program);
  const int before = host_nccl_sums();
  const auto results = run_everywhere(program, setting, HostOrder::Lazy, Precision::Float32);
  // A connecting one and one a step, for each of the two.
  EXPECT_EQ(host_nccl_sums() - before, 2 * (1 + kSteps));
  for (const CudaResult& result : results) {
    ASSERT_TRUE(result.finished());
    ASSERT_TRUE(result.verify.has_value());
    EXPECT_LE(result.verify->gradients.norm_rel, kMostApart) << result.verify->gradients.worst;
    EXPECT_EQ(result.timeline.end, results.front().timeline.end) << "not one timeline";
    EXPECT_EQ(result.steps.back().loss, results.front().steps.back().loss);
  }
}

TEST(NcclProcesses, NormsAndTiedTablesAreSummedByNccl) {
  const Model model = tied_transformer();
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  LowerOptions options{.clips = true, .optimizer = true};
  options.tied = tied_stages(model, equal_stages(model, lower(order, {})));
  const Program program = lower(order, {.post = Post::Deferred}, options);
  Setting setting(program, model);
  setting.training.optimizer.kind = exec::OptimizerKind::Sgd;
  setting.training.optimizer.clip_grad_norm = 0.01;
  for (const HostOrder streams : {HostOrder::Lazy, HostOrder::Shuffled}) {
    const int before = host_nccl_sums();
    const auto results = run_everywhere(program, setting, streams, Precision::Float32);
    // A connecting one, and a table's and a norm's in each step, for each of the two.
    EXPECT_EQ(host_nccl_sums() - before, 2 * (1 + 2 * kSteps));
    for (const CudaResult& result : results) {
      ASSERT_TRUE(result.finished());
      EXPECT_LE(result.verify->gradients.norm_rel, kMostApart) << result.verify->gradients.worst;
      EXPECT_LE(result.verify->parameters.norm_rel, kMostApart) << result.verify->parameters.worst;
    }
  }
}

/// In exact numerics chains go from process to process by the wire; NCCL sums floats.
void expect_divided(const Model& model, const Layout& layout) {
  const auto program_in = [&](exec::Numerics numerics) {
    return divided(planner::make_order("gpipe", {1, 2, 1, {}}), model, layout, "megatron-batched",
                   numerics);
  };
  const Program exact = program_in(exec::Numerics::Exact);
  expect_one_run(exact, DividedSetting(exact, model, exec::Numerics::Exact, layout));
  const Program fast = program_in(exec::Numerics::Fast);
  const DividedSetting setting(fast, model, exec::Numerics::Fast, layout);
  const auto results = run_everywhere(fast, setting, HostOrder::Lazy, Precision::Float32);
  for (const CudaResult& result : results) {
    ASSERT_TRUE(result.finished());
    EXPECT_LE(result.verify->gradients.norm_rel, kMostApart) << result.verify->gradients.worst;
    EXPECT_EQ(result.steps.back().loss, results.front().steps.back().loss);
  }
}

/// A process has a profiler of its own. This one tells of one copy in each step, at the time of the
/// last instruction.
template <int process>
pipewright_cuda recorded(const pipewright_cuda& host) {
  static std::atomic<std::int64_t> begun_ns{0};
  static std::atomic<std::uint64_t> step{0};
  pipewright_cuda table = host;
  table.record_activities = [](std::int64_t (*)(), std::size_t) { return 0; };
  table.stop_activities = [] {};
  table.begin_about = [](std::uint64_t what) {
    if (what > step) step = what;  // numbers of instructions are less than ranks'
    begun_ns = exec::local::steady_ns();
  };
  table.end_about = [] {};
  table.take_activities = [](void (*taken)(void*, const pipewright_cuda_activity*), void* by,
                             std::int64_t* dropped) {
    const pipewright_cuda_activity one{PIPEWRIGHT_CUDA_COPY, process, 1,      1, step, begun_ns,
                                       begun_ns + 1,         64,      nullptr};
    taken(by, &one);
    *dropped = process;
    return 0;
  };
  return table;
}

TEST(NcclProcesses, WhatTheirGpusDidComesTogether) {
  const Program program = lower(planner::make_order("1f1b", {2, 4, 1, {}}),
                                {.post = Post::Deferred}, {.optimizer = true});
  const Setting setting(program);
  const pipewright_cuda& host = host_cuda(HostOrder::Eager);
  const pipewright_cuda first = recorded<0>(host), second = recorded<1>(host);
  const auto results = run_everywhere(
      program, {setting.training, Precision::Float32, {}, {}, false, true}, {&first, &second});
  for (const CudaResult& result : results) {
    ASSERT_TRUE(result.work.has_value());
    EXPECT_EQ(result.work->dropped, 1);
    EXPECT_EQ(result.work->strays, 0);
    ASSERT_EQ(result.work->work.size(), 2U);
    for (int rank = 0; rank < 2; ++rank) {
      const GpuWork& one = result.work->work[static_cast<std::size_t>(rank)];
      EXPECT_EQ(one.rank, RankId(rank));
      EXPECT_EQ(one.instruction, kNoInstruction);
      EXPECT_EQ(one.bytes, 64);
      EXPECT_LT(one.end_ns, result.timeline.makespan_ns);
    }
  }
}

TEST(NcclProcesses, DivideLayersWithTheSerialRunsBits) {
  expect_divided(divisible_llama(), {.tensor = 2});
}

TEST(NcclProcesses, DivideSequencesWithTheSerialRunsBits) {
  const Model model = with_eight_tokens({{"style", "llama"}, {"kv_heads", 4}});
  for (const bool ring : {false, true})
    expect_divided(model, {.tensor = 1, .context = 2, .ring = ring});
}

TEST(NcclProcesses, DivideLatentAttentionWithTheSerialRunsBits) {
  expect_divided(divisible_latent(), {.tensor = 2});
  expect_divided(divisible_latent({{"sequence", 8}}), {.tensor = 1, .context = 2});
}

/// Rows go the same ways, counts ahead of them.
TEST(NcclProcesses, DivideExpertsWithTheSerialRunsBits) {
  expect_divided(divisible_mixtral({{"ffn", 12}}), {.tensor = 1, .experts = 2});
}

/// Each of them learns all.
TEST(NcclProcesses, EvaluateDividedLayersAsTheSerialForward) {
  constexpr auto kMode = exec::RunMode::Evaluate;
  const Model model = divisible_llama();
  const Layout layout{.tensor = 2};
  const Program program = divided(planner::make_order("gpipe", {1, 2, 1, {}}), model, layout,
                                  "megatron-batched", exec::Numerics::Exact, kMode);
  const ForwardSetting setting(program, model, exec::Numerics::Exact, layout, kMode);
  const ForwardNumbers expected = serial_forwards(setting.training, kSteps);
  const auto results =
      run_everywhere(program, {setting.training, Precision::Exact, {}, {}},
                     {static_cast<std::size_t>(program.ranks()), &host_cuda(HostOrder::Shuffled)});
  for (const CudaResult& result : results) {
    ASSERT_TRUE(result.finished());
    expect_equal({result.evaluation.value(), {}}, expected);
  }
}

TEST(NcclProcesses, OneThatHasNoGpuSaysSo) {
  const Program program = lower(planner::make_order("gpipe", {1, 2, 1, {}}), {});
  const Setting setting(program);
  test::MemoryHub hub(1, false);
  exec::mpi::Link link(std::make_unique<test::MemoryWire>(hub, 0));
  const pipewright_cuda& cuda = host_cuda(HostOrder::Eager);
  EXPECT_THROW(exec::nccl::run_on_nccl(cuda, host_nccl(cuda), program, costs_of(program, 1000),
                                       {setting.training, Precision::Exact, {}, {}}, {}, link, 7),
               MachineError);
}

/// Each process has a graph of its own rank, whose calls of NCCL meet those of the others' graphs.
TEST(NcclProcesses, GraphsOfDividedLayersAreReplayedAsTheyAreEnqueued) {
  const Model model = divisible_model();
  const Layout layout{.tensor = 2};
  const Program program = divided(planner::make_order("gpipe", {1, 2, 1, {}}), model, layout,
                                  {.post = Post::Deferred}, exec::Numerics::Fast);
  const DividedSetting setting(program, model, exec::Numerics::Fast, layout);
  for (const HostOrder order : {HostOrder::Eager, HostOrder::Lazy, HostOrder::Shuffled}) {
    CudaTraining how{setting.training, Precision::Float32, {}, {}};
    const std::vector<const pipewright_cuda*> cudas(2, &host_cuda(order));
    const auto enqueued = run_everywhere(program, how, cudas);
    how.as_graph = true;
    const std::int64_t launches = host_counts().launches;
    const auto replayed = run_everywhere(program, how, cudas);
    EXPECT_EQ(host_counts().launches - launches, 2 * (kSteps - 1));
    for (std::size_t p = 0; p < replayed.size(); ++p) {
      ASSERT_TRUE(replayed[p].finished());
      ASSERT_EQ(replayed[p].steps.size(), enqueued[p].steps.size());
      for (std::size_t step = 0; step < replayed[p].steps.size(); ++step)
        EXPECT_EQ(replayed[p].steps[step].loss, enqueued[p].steps[step].loss) << "step " << step;
    }
  }
}

}  // namespace nccl_processes_test
}  // namespace pipewright::tests
