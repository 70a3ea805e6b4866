// The table's attention without squares, where it has one, beside its definition.
#include <algorithm>
#include <cmath>

#include "exec/devices/cuda/fused_attention.hpp"
#include "tests/support/cuda_kernel_fixture.hpp"
#include "tests/support/host_attention.hpp"

namespace pipewright::tests {
namespace {

using exec::AttentionShape;
using exec::cuda::Bfloat16;
using Narrow = std::vector<Bfloat16>;

Narrow random_numbers(std::size_t n, std::uint64_t key) {
  const Floats wide = random_floats(n, key);
  return {wide.begin(), wide.end()};
}

double norm_apart(const Narrow& found, const Narrow& expected) {
  double apart = 0, whole = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double e = static_cast<double>(expected[i]), d = static_cast<double>(found[i]) - e;
    apart += d * d;
    whole += e * e;
  }
  return std::sqrt(apart / whole);
}

class CudaAttention : public CudaKernels {
 protected:
  void SetUp() override {
    CudaKernels::SetUp();
    if (cuda_ == nullptr) return;
    if (cuda_->attention_is_there == nullptr) GTEST_SKIP() << "built without cuDNN";
    if (cuda_->attention_is_there() != 0) GTEST_SKIP() << cuda_->why();
  }

  struct Results {
    Narrow context, gradients;
    Floats log_sums;
  };
  Results on_gpu(const AttentionShape& s, const Narrow& qkv, const Narrow& dcontext) {
    exec::cuda::FusedAttention attention(*cuda_, stream(), 0);
    const auto* made = attention.of(s);
    EXPECT_NE(made, nullptr) << cuda_->why();
    if (made == nullptr) return {};
    const std::size_t words = dcontext.size();
    Bfloat16 *const rows = up(qkv), *const context = up(Narrow(words, Bfloat16(NAN))),
                    *const gradients = up(Narrow(qkv.size(), Bfloat16(NAN)));
    float* const log_sums = up(Floats(s.log_sums(), NAN));
    done(cuda_->attend(made->attention, rows, context, log_sums, made->workspace));
    done(cuda_->attend_backward(made->attention, rows, context, log_sums, up(dcontext), gradients,
                                made->workspace));
    return {down(context, words), down(gradients, qkv.size()), down(log_sums, s.log_sums())};
  }
  static Results by_definition(const AttentionShape& s, const Narrow& qkv, const Narrow& dcontext) {
    const HostAttention attention({s.samples, s.sequence, s.heads, s.key_heads(), s.head_width()});
    Results all{Narrow(dcontext.size()), Narrow(qkv.size()), Floats(s.log_sums())};
    attention.forward(qkv.data(), all.context.data(), all.log_sums.data());
    attention.backward(qkv.data(), all.context.data(), all.log_sums.data(), dcontext.data(),
                       all.gradients.data());
    return all;
  }
};

TEST_F(CudaAttention, AgreesWithItsDefinitionAndRepeatsItsBits) {
  const AttentionShape shapes[] = {{1, 64, 64, 1},      {2, 48, 128, 4},   {1, 33, 32, 4},
                                   {2, 130, 256, 2},    {1, 150, 384, 3},  {3, 96, 256, 4, 2},
                                   {1, 128, 640, 8, 1}, {2, 77, 192, 2, 2}};
  for (const AttentionShape& s : shapes) {
    SCOPED_TRACE(std::to_string(s.samples) + " x " + std::to_string(s.sequence) + ", " +
                 std::to_string(s.heads) + " heads of " + std::to_string(s.head_width()));
    const Narrow qkv = random_numbers(product(s.rows(), s.qkv_width()), 50),
                 dcontext = random_numbers(product(s.rows(), s.width), 51);
    const Results expected = by_definition(s, qkv, dcontext), found = on_gpu(s, qkv, dcontext);
    if (found.context.empty()) return;
    EXPECT_LE(norm_apart(found.context, expected.context), 1e-2);
    EXPECT_LE(norm_apart(found.gradients, expected.gradients), 1e-2);
    for (std::size_t i = 0; i < found.log_sums.size(); ++i)
      ASSERT_NEAR(found.log_sums[i], expected.log_sums[i], 1e-3F) << i;
    const Results again = on_gpu(s, qkv, dcontext);
    EXPECT_TRUE(std::equal(found.gradients.begin(), found.gradients.end(), again.gradients.begin(),
                           [](Bfloat16 a, Bfloat16 b) { return a.bits == b.bits; }));
  }
}

/// What FusedAttention does not ask for: heads that are too wide, or of no whole packs.
TEST_F(CudaAttention, IsNotMadeForOtherHeads) {
  exec::cuda::FusedAttention attention(*cuda_, stream(), 0);
  EXPECT_EQ(attention.of({1, 16, 12, 3}), nullptr);
  EXPECT_EQ(attention.of({1, 16, 272, 2}), nullptr);
  EXPECT_EQ(attention.workspace_bytes(), 0);
}

}  // namespace
}  // namespace pipewright::tests
