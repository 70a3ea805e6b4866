// What the cases of kernels share: arrays on a GPU, or what stands for one, and comparisons of
// bits.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/cuda_under_test.hpp"
#include "tests/unit/numeric.hpp"

namespace pipewright::tests {

using exec::cuda::require;
using test::Floats;
using test::random_floats;

inline std::size_t product(int a, int b) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b);
}

/// NaN equals NaN here, 0 does not equal -0.
inline void expect_same_bits(const Floats& found, const Floats& expected, const char* what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(found[i]) && std::isnan(expected[i])) continue;
    ASSERT_EQ(std::memcmp(&found[i], &expected[i], sizeof(float)), 0)
        << what << ", element " << i << ": " << found[i] << " instead of " << expected[i];
  }
}

/// Of whole sequences, and of their squares of scores.
inline pipewright_cuda_places places_of_whole(int sequence, int first_row = 0) {
  return {first_row, sequence, {0, sequence / 2}};
}
inline pipewright_cuda_causal squares_of(int squares, int sequence) {
  const std::int64_t step = std::int64_t{sequence} * sequence;
  return {squares, sequence, 0, sequence, step, step};
}

class CudaKernels : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    const std::vector<NamedCuda> all = cudas_under_test(why);
    if (all.empty()) GTEST_SKIP() << why;
    cuda_ = all.front().table;
    device_ = std::make_unique<OnDevice>(*cuda_);
  }

  const pipewright_cuda_kernels& kernels() const { return cuda_->kernels; }
  void* stream() const { return device_->stream; }
  template <class T>
  T* up(const std::vector<T>& values) {
    return device_->up(values);
  }
  template <class T>
  std::vector<T> down(const T* from, std::size_t n) {
    return device_->down(from, n);
  }
  void done(int status) const { require(*cuda_, status); }

  const pipewright_cuda* cuda_ = nullptr;
  std::unique_ptr<OnDevice> device_;
};

}  // namespace pipewright::tests
