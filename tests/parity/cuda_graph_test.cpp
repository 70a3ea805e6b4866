// What the host's CUDA table can tell of a captured step, and no GPU: that nothing but the launch
// is enqueued, and that a capture is refused what CUDA refuses it.
#include <gtest/gtest.h>

#include <atomic>

#include "core/base/error.hpp"
#include "exec/devices/cuda/run.hpp"
#include "tests/parity/outcome.hpp"
#include "tests/support/host_cuda.hpp"

namespace pipewright::tests {
namespace cuda_graph_test {

using exec::cuda::CudaTraining;
using exec::cuda::Precision;

TEST(CudaGraphOnHost, FromTheThirdStepOnNothingIsEnqueuedButALaunch) {
  const Program program = program_of({"zb-h1", 4, 8, 1, "torch"});
  const Setting setting(program);
  const CudaTraining how{setting.training, Precision::Exact, {}, {}, true};
  std::vector<HostCounts> behind;
  exec::RunOptions options{.steps = 6};
  options.on_step = [&](int, const exec::StepResult&) { behind.push_back(host_counts()); };
  exec::cuda::run_on_cuda(host_cuda(HostOrder::Lazy), program, costs_of(program, 1000), how,
                          options);
  ASSERT_EQ(behind.size(), 6U);
  EXPECT_EQ(behind[1].launches, behind[0].launches + 1);
  EXPECT_EQ(behind[1].puts, behind[0].puts) << "work beside the capture";
  for (std::size_t step = 2; step < behind.size(); ++step) {
    EXPECT_EQ(behind[step].launches, behind[step - 1].launches + 1);
    EXPECT_EQ(behind[step].puts, behind[step - 1].puts) << "step " << step;
  }
}

/// A table whose bias_forward fails from some call on.
std::atomic<int> calls_left{0};
constexpr int kManyCalls = 1'000'000;

TEST(CudaGraphOnHost, ARankThatFailsWithinTheCaptureEndsTheRun) {
  const Program program = program_of({"1f1b", 4, 8, 1, "torch"});
  const Setting setting(program);
  CudaTraining how{setting.training, Precision::Exact, {}, {}};
  pipewright_cuda table = host_cuda(HostOrder::Shuffled);
  table.kernels.bias_forward = [](void* stream, int rows, int width, const void* bias, void* y) {
    if (--calls_left < 0) return 1;
    return host_cuda(HostOrder::Shuffled).kernels.bias_forward(stream, rows, width, bias, y);
  };
  calls_left = kManyCalls;
  exec::cuda::run_on_cuda(table, program, costs_of(program, 1000), how, {.steps = 1});
  const int calls_of_step = kManyCalls - calls_left;
  ASSERT_GT(calls_of_step, 8);
  how.as_graph = true;
  calls_left = calls_of_step + calls_of_step / 2;
  EXPECT_THROW(exec::cuda::run_on_cuda(table, program, costs_of(program, 1000), how, {.steps = 4}),
               RunError);
  calls_left = kManyCalls;
  table.end_capture = [](void* stream) -> void* {
    const pipewright_cuda& host = host_cuda(HostOrder::Shuffled);
    if (void* const graph = host.end_capture(stream)) host.release_graph(graph);
    return nullptr;
  };
  EXPECT_THROW(exec::cuda::run_on_cuda(table, program, costs_of(program, 1000), how, {.steps = 4}),
               RunError);
}

/// Two streams and an event of a table.
struct TwoStreams {
  TwoStreams() {
    for (void*& one : events) one = cuda.event(0);
  }
  ~TwoStreams() {
    for (void* one : {first, second}) cuda.release_stream(one);
    for (void* one : events) cuda.release_event(one);
  }
  TwoStreams(const TwoStreams&) = delete;
  TwoStreams& operator=(const TwoStreams&) = delete;

  const pipewright_cuda& cuda = host_cuda(HostOrder::Lazy);
  void *first = cuda.stream(nullptr), *second = cuda.stream(nullptr);
  void* events[3] = {};
};

TEST(CudaGraphOnHost, TheTableRefusesWhatCudaRefuses) {
  TwoStreams two;
  const pipewright_cuda& cuda = two.cuda;
  auto [fork, before, join] = two.events;
  ASSERT_EQ(cuda.record(before, two.second), 0);
  ASSERT_EQ(cuda.begin_capture(two.first), 0);
  EXPECT_NE(cuda.begin_capture(two.first), 0);
  ASSERT_EQ(cuda.record(fork, two.first), 0);
  EXPECT_NE(cuda.wait_for_event(fork), 0) << "the host waits within a capture";
  EXPECT_EQ(cuda.is_over(fork), -1);
  ASSERT_EQ(cuda.stream_waits(two.second, fork), 0);
  EXPECT_NE(cuda.stream_waits(two.second, before), 0) << "an event from before the capture";
  ASSERT_EQ(cuda.mark(join, two.second), 0);
  EXPECT_NE(cuda.stream_waits(two.first, join), 0) << "a mark orders nothing";
  EXPECT_EQ(cuda.end_capture(two.first), nullptr) << "a stream that was not joined";

  ASSERT_EQ(cuda.begin_capture(two.first), 0);
  ASSERT_EQ(cuda.record(fork, two.first), 0);
  ASSERT_EQ(cuda.stream_waits(two.second, fork), 0);
  ASSERT_EQ(cuda.kernels.delay(two.second, 1), 0);
  ASSERT_EQ(cuda.record(join, two.second), 0);
  ASSERT_EQ(cuda.stream_waits(two.first, join), 0);
  void* const graph = cuda.end_capture(two.first);
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(cuda.launch(graph, two.second), 0);
  cuda.release_graph(graph);
}

}  // namespace cuda_graph_test
}  // namespace pipewright::tests
