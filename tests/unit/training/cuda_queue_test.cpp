// A rank's place on a GPU, on the host's table: what it asks of the table when it is made, and who
// may enter it.
#include "exec/devices/cuda/queue.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "core/base/error.hpp"
#include "exec/devices/cuda/sites.hpp"
#include "tests/support/host_cuda.hpp"

namespace pipewright::exec::cuda {
namespace cuda_queue_test {

using tests::host_blas_sms;
using tests::host_cuda;
using tests::HostOrder;

/// Of two GPUs with 132 SMs each, and two ranks on each.
TEST(CudaQueue, ChoosesCublasKernelsForThePartitionsSms) {
  const pipewright_cuda& cuda = host_cuda(HostOrder::Eager);
  Partitions partitions(cuda);
  const auto sites = sites_of(cuda, 4, Precision::Float32, partitions);
  const std::size_t before = host_blas_sms().size();
  const Queue divided(cuda, sites[1]), whole(cuda, {0, nullptr, Precision::Float32});
  const Queue exact(cuda, {0, sites[0].partition, Precision::Exact, sites[0].sms});
  const std::vector<int> all = host_blas_sms();
  EXPECT_EQ(std::vector<int>(all.begin() + static_cast<std::ptrdiff_t>(before), all.end()),
            (std::vector<int>{64, 0}));
  EXPECT_EQ(divided.workspace_bytes(), (std::int64_t{32} << 20) + (std::int64_t{2} << 20));
  EXPECT_EQ(exact.workspace_bytes(), 0);
}

TEST(CudaQueue, IsEnteredByOneThreadAtATime) {
  const pipewright_cuda& cuda = host_cuda(HostOrder::Eager);
  Partitions partitions(cuda);
  const auto sites = sites_of(cuda, 4, Precision::Exact, partitions);
  const Queue own(cuda, sites[0]);
  const auto enters = [&] {
    bool entered = false;
    std::thread([&] { entered = cuda.enter(0, sites[0].partition) == 0; }).join();
    return entered;
  };
  EXPECT_FALSE(enters());
  require(cuda, cuda.enter(0, nullptr));  // and leaves it
  EXPECT_TRUE(enters());
  own.enter();
}

}  // namespace cuda_queue_test
}  // namespace pipewright::exec::cuda
