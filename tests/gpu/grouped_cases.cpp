// Products of several shapes in one launch: the results of as many launches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "exec/devices/cuda/bfloat16.hpp"
#include "tests/support/cuda_kernel_fixture.hpp"

namespace pipewright::tests {
namespace {

using exec::cuda::Bfloat16;
using Gemms = std::vector<pipewright_cuda_gemm>;

constexpr int kIn = 24, kOut = 40;
constexpr int kRowsOfExperts[] = {3, 64, 1, 130};
constexpr int kRows = 198;

class CudaGrouped : public CudaKernels {
 protected:
  void SetUp() override {
    CudaKernels::SetUp();
    if (IsSkipped()) return;
    constexpr std::size_t kBytes = std::size_t{32} << 20;
    blas_ = exec::cuda::required(
        *cuda_, cuda_->blas(stream(), 0, up(Floats(kBytes / sizeof(float))), kBytes));
  }
  void TearDown() override {
    if (blas_ != nullptr) cuda_->release_blas(blas_);
  }

  /// y = x · w of each expert, or with `back` x = y · w, transposed.
  template <class T>
  static Gemms experts(const T* from, const T* w, T* to, bool back, float beta) {
    const int k = back ? kOut : kIn, n = back ? kIn : kOut;
    Gemms all;
    std::size_t first = 0, expert = 0;
    for (const int rows : kRowsOfExperts) {
      pipewright_cuda_gemm g{};
      g.m = rows, g.n = n, g.k = k, g.outer = g.inner = 1, g.alpha = 1, g.beta = beta;
      g.a = {from + first * product(1, k), k, 0, 0, 0};
      g.b = {w + expert++ * product(kIn, kOut), kOut, back ? 1 : 0, 0, 0};
      g.c = to + first * product(1, n);
      g.c_stride = n;
      first += product(rows, 1);
      all.push_back(g);
    }
    return all;
  }
  void multiply_together(const Gemms& all, int precision) {
    const auto count = static_cast<int>(all.size());
    ASSERT_EQ(cuda_->gemms_group(blas_, all.data(), count, precision), 1);
    std::vector<const void*> places;
    for (const auto& g : all) places.push_back(g.a.data);
    for (const auto& g : all) places.push_back(g.b.data);
    for (const auto& g : all) places.push_back(g.c);
    void** const kept = up(std::vector<void*>(places.size()));
    done(kernels().keep_pointers(stream(), places.size(), places.data(), kept));
    done(cuda_->grouped_gemm(blas_, all.data(), count, precision, kept));
  }
  template <class T>
  void expect_the_same(int precision, double most) {
    const auto numbers = [&](std::size_t n, std::uint64_t key) {
      const Floats x = random_floats(n, key);
      return up(std::vector<T>(x.begin(), x.end()));
    };
    T* const w = numbers(std::size(kRowsOfExperts) * product(kIn, kOut), 1);
    for (const bool back : {false, true}) {
      const std::size_t n = product(kRows, back ? kIn : kOut);
      T* const from = numbers(product(kRows, back ? kOut : kIn), 2);
      for (const float beta : {0.0F, 1.0F}) {
        T *const together = numbers(n, 3), *const apart = numbers(n, 3);
        multiply_together(experts(from, w, together, back, beta), precision);
        for (const auto& one : experts(from, w, apart, back, beta))
          done(cuda_->gemm(blas_, &one, precision));
        const std::vector<T> found = down(together, n), expected = down(apart, n);
        for (std::size_t i = 0; i < n; ++i) {
          const auto wanted = static_cast<double>(static_cast<float>(expected[i]));
          ASSERT_NEAR(static_cast<double>(static_cast<float>(found[i])), wanted,
                      most * (1 + std::fabs(wanted)));
        }
      }
    }
  }

  void* blas_ = nullptr;
};

TEST_F(CudaGrouped, ProductsOfExpertsAreThoseOfSeveralLaunches) {
  expect_the_same<float>(PIPEWRIGHT_CUDA_FP32, 1e-6);
  expect_the_same<float>(PIPEWRIGHT_CUDA_TF32, 1e-2);
  expect_the_same<Bfloat16>(PIPEWRIGHT_CUDA_BF16, 0x1p-7);
}

/// Gradients of weights add up in float32, from factors of 16 bits: cuBLAS has no such group.
TEST_F(CudaGrouped, ResultsOfAnotherTypeAreNoGroup) {
  Bfloat16* const x = up(std::vector<Bfloat16>(product(kRows, kOut)));
  Gemms all = experts(x, x, x, false, 1.0F);
  for (auto& g : all) g.c_is_float = 1;
  EXPECT_EQ(
      cuda_->gemms_group(blas_, all.data(), static_cast<int>(all.size()), PIPEWRIGHT_CUDA_BF16), 0);
}

TEST_F(CudaGrouped, PointersComeWithTheLaunch) {
  std::vector<char> somewhere(1000);
  std::vector<const void*> values;
  for (const char& one : somewhere) values.push_back(&one);
  void** const kept = up(std::vector<void*>(values.size()));
  done(kernels().keep_pointers(stream(), values.size(), values.data(), kept));
  const std::vector<const void*> asked = values;
  std::fill(values.begin(), values.end(), nullptr);
  const std::vector<void*> found = down(kept, asked.size());
  EXPECT_TRUE(std::equal(found.begin(), found.end(), asked.begin()));
}

}  // namespace
}  // namespace pipewright::tests
