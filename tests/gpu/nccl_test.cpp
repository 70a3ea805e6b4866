// NCCL's table: what it does on a machine without a driver, and on one GPU a communicator of one
// rank, which is all that NCCL 2.28 lets one GPU have.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <numeric>
#include <thread>

#include "core/base/error.hpp"
#include "exec/transports/nccl/library.hpp"
#include "tests/support/cuda_under_test.hpp"

namespace pipewright::tests {
namespace {

using Id = std::array<char, PIPEWRIGHT_NCCL_ID_BYTES>;

/// The table, or null: then `why` says what is missing.
const pipewright_nccl* nccl_here(std::string& why) {
  try {
    return &exec::nccl::load_nccl();
  } catch (const MachineError& error) {
    why = error.what();
    return nullptr;
  }
}

TEST(NcclLibrary, IsLoadedWithoutADriver) {
  std::string why;
  const pipewright_nccl* nccl = nccl_here(why);
  if (nccl == nullptr) GTEST_SKIP() << why;
  EXPECT_GE(nccl->version(), 22700);
  EXPECT_EQ(exec::nccl::version_text(22809), "2.28.9");
  Id first{}, second{};
  EXPECT_EQ(nccl->unique_id(first.data()), PIPEWRIGHT_NCCL_DONE);
  EXPECT_EQ(nccl->unique_id(second.data()), PIPEWRIGHT_NCCL_DONE);
  EXPECT_NE(first, second);
  EXPECT_THROW(exec::nccl::require(*nccl, 5, "join"), RunError);
  EXPECT_NO_THROW(exec::nccl::require(*nccl, PIPEWRIGHT_NCCL_IN_PROGRESS, "join"));
}

TEST(NcclLibrary, SaysSoWhereNoGpuIs) {
  std::string why;
  const pipewright_nccl* nccl = nccl_here(why);
  if (nccl == nullptr) GTEST_SKIP() << why;
  if (exec::cuda::why_no_gpu().empty()) GTEST_SKIP() << "this machine has a GPU";
  Id id{};
  ASSERT_EQ(nccl->unique_id(id.data()), PIPEWRIGHT_NCCL_DONE);
  void* communicator = nullptr;
  const int result = nccl->join(&communicator, 1, id.data(), 0, 4, "smoke");
  EXPECT_NE(result, PIPEWRIGHT_NCCL_DONE);
  EXPECT_THROW(
      exec::nccl::require(*nccl, result == PIPEWRIGHT_NCCL_IN_PROGRESS ? 1 : result, "join"),
      RunError);
}

class OneRank {
 public:
  explicit OneRank(const pipewright_nccl& nccl) : nccl_(nccl) {
    Id id{};
    exec::nccl::require(nccl_, nccl_.unique_id(id.data()), "unique id");
    exec::nccl::require(nccl_, nccl_.join(&communicator, 1, id.data(), 0, 4, "one rank"), "join");
    settle();
  }
  ~OneRank() { nccl_.abort(communicator); }
  OneRank(const OneRank&) = delete;
  OneRank& operator=(const OneRank&) = delete;

  void settle() {
    while (nccl_.state(communicator) == PIPEWRIGHT_NCCL_IN_PROGRESS)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    exec::nccl::require(nccl_, nccl_.state(communicator), "state");
  }

  void* communicator = nullptr;

 private:
  const pipewright_nccl& nccl_;
};

TEST(NcclOnOneGpu, ASendToItselfInsideAGroupArrives) {
  std::string why = exec::cuda::why_no_gpu();
  if (!why.empty()) GTEST_SKIP() << why;
  const pipewright_nccl* nccl = nccl_here(why);
  if (nccl == nullptr) GTEST_SKIP() << why;
  OnDevice device(exec::cuda::load_module());
  OneRank one(*nccl);
  std::vector<float> numbers(1024);
  std::iota(numbers.begin(), numbers.end(), 1.0F);
  const float* from = device.up(numbers);
  float* to = device.up(std::vector<float>(1024, 0.0F));
  constexpr int kKind = PIPEWRIGHT_NCCL_FLOAT32;
  exec::nccl::require(*nccl, nccl->group_start(), "group");
  exec::nccl::require(*nccl, nccl->send(from, 1024, kKind, 0, one.communicator, device.stream),
                      "send");
  exec::nccl::require(*nccl, nccl->receive(to, 1024, kKind, 0, one.communicator, device.stream),
                      "receive");
  exec::nccl::require(*nccl, nccl->group_end(), "group");
  one.settle();
  EXPECT_EQ(device.down(to, 1024), numbers);
}

TEST(NcclOnOneGpu, CollectivesOfOneRankKeepWhatTheyGet) {
  std::string why = exec::cuda::why_no_gpu();
  if (!why.empty()) GTEST_SKIP() << why;
  const pipewright_nccl* nccl = nccl_here(why);
  if (nccl == nullptr) GTEST_SKIP() << why;
  OnDevice device(exec::cuda::load_module());
  OneRank one(*nccl);
  const std::vector<float> numbers(1000, 3.0F);
  const float* from = device.up(numbers);
  for (const auto call : {nccl->all_reduce, nccl->reduce_scatter, nccl->all_gather}) {
    float* to = device.up(std::vector<float>(1000, 0.0F));
    exec::nccl::require(
        *nccl, call(from, to, 1000, PIPEWRIGHT_NCCL_FLOAT32, one.communicator, device.stream),
        "collective");
    one.settle();
    EXPECT_EQ(device.down(to, 1000), numbers);
  }
}

}  // namespace
}  // namespace pipewright::tests
