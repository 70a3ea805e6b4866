// What a recording of GPUs' work says of a training on the host's table: every piece is of the
// instruction that the rank's thread put it there for, lies in that instruction's time, and is the
// same whether steps are enqueued or replayed as a graph.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "exec/devices/cuda/activities.hpp"
#include "exec/devices/cuda/run.hpp"
#include "exec/transports/nccl/run.hpp"
#include "planner/plans/data_parallel.hpp"
#include "tests/parity/outcome.hpp"
#include "tests/parity/update_cases.hpp"
#include "tests/support/host_cuda.hpp"
#include "tests/support/host_nccl.hpp"

namespace pipewright::tests {
namespace cuda_work_test {

using exec::cuda::CudaResult;
using exec::cuda::CudaTraining;
using exec::cuda::Precision;

CudaTraining recorded(const Setting& setting, bool as_graph = false) {
  return {setting.training, Precision::Exact, {}, {}, as_graph, true};
}

/// By instruction, the pieces as "kind name bytes", sorted.
std::map<InstructionId, std::vector<std::string>> pieces_of(const GpuWorkLog& log) {
  std::map<InstructionId, std::vector<std::string>> pieces;
  for (const GpuWork& one : log.work)
    pieces[one.instruction].push_back(std::to_string(static_cast<int>(one.kind)) + " " + one.name +
                                      " " + std::to_string(one.bytes));
  for (auto& [id, of] : pieces) std::sort(of.begin(), of.end());
  return pieces;
}

/// Either clock is set by the host's between two readings of its own, which a busy machine tears
/// apart; far less than a step takes.
constexpr std::int64_t kReadingsNs = 500'000;

void expect_told_apart(const Program& program, const CudaResult& result) {
  ASSERT_TRUE(result.finished());
  ASSERT_TRUE(result.work.has_value());
  const GpuWorkLog& log = *result.work;
  EXPECT_EQ(log.dropped, 0);
  EXPECT_EQ(log.strays, 0);
  EXPECT_LT(log.apart_ns, kReadingsNs);
  EXPECT_EQ(result.timeline_step, static_cast<int>(result.steps.size()) - 1);
  const auto pieces = pieces_of(log);
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    const ActionKind kind = program.code[id].kind;
    EXPECT_TRUE(!is_compute(kind) || pieces.contains(id)) << program.text(id);
  }
  for (const GpuWork& one : log.work) {
    EXPECT_LE(one.start_ns, one.end_ns);
    EXPECT_FALSE(one.kind == GpuWork::Kind::Kernel && one.name.empty());
    if (one.instruction == kNoInstruction) continue;
    EXPECT_EQ(one.rank, program.rank_of(one.instruction));
  }
}

TEST(CudaWork, IsOfTheInstructionsThatPutItThere) {
  for (const HostOrder order : {HostOrder::Eager, HostOrder::Lazy, HostOrder::Shuffled}) {
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "interleaved"}) {
      const int chunks = std::string(schedule) == "interleaved" ? 2 : 1;
      const Program program = program_of({schedule, 2, 4, chunks, "torch"});
      SCOPED_TRACE(schedule + std::to_string(static_cast<int>(order)));
      const Setting setting(program);
      expect_told_apart(program,
                        exec::cuda::run_on_cuda(host_cuda(order), program, costs_of(program, 1000),
                                                recorded(setting), {.steps = 2}));
    }
  }
}

/// A copy from another rank belongs to the RECV that brings it, and has its bytes.
TEST(CudaWork, CopiesAreOfTheirReceives) {
  const Program program = program_of({"1f1b", 2, 4, 1, "torch"});
  const Setting setting(program);
  const CudaResult result =
      exec::cuda::run_on_cuda(host_cuda(HostOrder::Lazy), program, costs_of(program, 1000),
                              recorded(setting), {.steps = 1});
  ASSERT_TRUE(result.work.has_value());
  std::set<InstructionId> receives, brought;
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    if (is_recv(program.code[id].kind)) receives.insert(id);
  }
  for (const GpuWork& one : result.work->work) {
    if (one.instruction == kNoInstruction || !is_recv(program.code[one.instruction].kind)) continue;
    EXPECT_EQ(one.kind, GpuWork::Kind::Copy);
    EXPECT_GT(one.bytes, 0);
    EXPECT_GE(one.start_ns + kReadingsNs, result.timeline.moving[one.instruction]);
    EXPECT_LE(one.end_ns, result.timeline.end[one.instruction] + kReadingsNs);
    brought.insert(one.instruction);
  }
  EXPECT_EQ(brought, receives);
}

TEST(CudaWork, OfAGraphIsThatOfItsActions) {
  const Program program = program_of({"1f1b", 2, 4, 1, "torch"});
  const Setting setting(program);
  for (const HostOrder order : {HostOrder::Eager, HostOrder::Shuffled}) {
    const auto run = [&](bool as_graph) {
      return exec::cuda::run_on_cuda(host_cuda(order), program, costs_of(program, 1000),
                                     recorded(setting, as_graph), {.steps = 4});
    };
    const CudaResult replayed = run(true);
    expect_told_apart(program, replayed);
    auto of_graph = pieces_of(*replayed.work), one_by_one = pieces_of(*run(false).work);
    // What the step ends with may begin behind its last action, and is no part of the step then.
    of_graph.erase(kNoInstruction);
    one_by_one.erase(kNoInstruction);
    EXPECT_EQ(of_graph, one_by_one);
  }
}

/// Replicas' sums are NCCL's, whose host puts nothing on streams that a profiler would see.
TEST(CudaWork, OverNcclIsRecordedToo) {
  pipewright_cuda cuda = host_cuda(HostOrder::Eager);
  cuda.gpus = [] { return 4; };
  const Order order = planner::replicate(planner::make_order("1f1b", {2, 4, 1, {}}), 2);
  const Program program = lower(order, {.post = Post::Deferred}, {.optimizer = true});
  const Setting setting(program);
  CudaTraining how = recorded(setting);
  how.precision = Precision::Float32;
  expect_told_apart(program, exec::nccl::run_on_nccl(cuda, host_nccl(cuda), program,
                                                     costs_of(program, 1000), how, {.steps = 2}));
}

TEST(CudaWork, TooMuchOfItIsCounted) {
  const Program program = program_of({"1f1b", 2, 4, 1, "torch"});
  const Setting setting(program);
  const pipewright_cuda& cuda = host_cuda(HostOrder::Eager);
  exec::cuda::Activities activities(cuda, program, 10);
  const auto run = [&] {
    CudaTraining how = recorded(setting);
    how.records_work = false;
    ASSERT_TRUE(exec::cuda::run_on_cuda(cuda, program, costs_of(program, 1000), how, {.steps = 1})
                    .finished());
  };
  run();
  const GpuWorkLog log = activities.take(0);
  EXPECT_EQ(log.work.size(), 10U);
  EXPECT_GT(log.dropped, 100);
  activities.discard();
  run();
  EXPECT_EQ(activities.take(0).dropped, log.dropped);
}

/// Peak overhead without a recording: nothing.
TEST(CudaWork, NobodyIsToldWhereNobodyAsks) {
  static int told = 0;
  pipewright_cuda cuda = host_cuda(HostOrder::Eager);
  cuda.begin_about = [](std::uint64_t) { ++told; };
  cuda.record_activities = [](std::int64_t (*)(), std::size_t) { return ++told; };
  const Program program = program_of({"1f1b", 2, 4, 1, "torch"});
  const Setting setting(program);
  CudaTraining how = recorded(setting);
  how.records_work = false;
  const CudaResult result =
      exec::cuda::run_on_cuda(cuda, program, costs_of(program, 1000), how, {.steps = 1});
  ASSERT_TRUE(result.finished());
  EXPECT_FALSE(result.work.has_value());
  EXPECT_EQ(told, 0);
}

}  // namespace cuda_work_test
}  // namespace pipewright::tests
