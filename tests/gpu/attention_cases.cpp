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
    if (std::isnan(static_cast<float>(expected[i]))) {
      EXPECT_TRUE(std::isnan(static_cast<float>(found[i]))) << i;
      continue;
    }
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
    Narrow context, dqueries, dkeys, dvalues;
    Floats log_sums;
  };
  struct Arrays {
    Narrow queries, keys, values, dcontext;
  };
  static Results empty(const pipewright_cuda_attention& s, const Arrays& of) {
    const auto nothing = [](const Narrow& like) { return Narrow(like.size(), Bfloat16(NAN)); };
    return {nothing(of.dcontext), nothing(of.queries), nothing(of.keys), nothing(of.values),
            Floats(product(s.samples * s.heads, s.sequence), NAN)};
  }
  Results on_gpu(const exec::cuda::FusedAttention::Made& made, const Arrays& of) {
    const Results start = empty(made.shape, of);
    Bfloat16 *const q = up(of.queries), *const k = up(of.keys), *const v = up(of.values),
                    *const context = up(start.context), *const dq = up(start.dqueries),
                    *const dk = up(start.dkeys), *const dv = up(start.dvalues);
    float* const log_sums = up(start.log_sums);
    done(cuda_->attend(made.attention, q, k, v, context, log_sums, made.workspace));
    done(cuda_->attend_backward(made.attention, q, k, v, context, log_sums, up(of.dcontext), dq, dk,
                                dv, made.workspace));
    return {down(context, start.context.size()), down(dq, start.dqueries.size()),
            down(dk, start.dkeys.size()), down(dv, start.dvalues.size()),
            down(log_sums, start.log_sums.size())};
  }
  static Results by_definition(const pipewright_cuda_attention& s, const Arrays& of) {
    const HostAttention attention(s);
    Results all = empty(s, of);
    const HostAttention::Arrays arrays{of.queries.data(), of.keys.data(), of.values.data()};
    attention.forward(arrays, all.context.data(), all.log_sums.data());
    attention.backward(arrays, all.context.data(), all.log_sums.data(), of.dcontext.data(),
                       {all.dqueries.data(), all.dkeys.data(), all.dvalues.data()});
    return all;
  }

  /// Each of the arrays by itself; what is between heads stays as it was.
  template <class Shape>
  void expect_defined(const Shape& shape) {
    exec::cuda::FusedAttention attention(*cuda_, stream(), 0);
    const auto* made = attention.of(shape);
    ASSERT_NE(made, nullptr) << cuda_->why();
    const pipewright_cuda_attention& s = made->shape;
    const int rows = s.samples * s.sequence;
    const Arrays of{random_numbers(product(rows, s.queries.stride), 50),
                    random_numbers(product(rows, s.keys.stride), 51),
                    random_numbers(product(rows, s.values.stride), 52),
                    random_numbers(product(rows, s.heads * s.value_width), 53)};
    const Results expected = by_definition(s, of), found = on_gpu(*made, of);
    EXPECT_LE(norm_apart(found.context, expected.context), 1e-2);
    EXPECT_LE(norm_apart(found.dqueries, expected.dqueries), 1e-2);
    EXPECT_LE(norm_apart(found.dkeys, expected.dkeys), 1e-2);
    EXPECT_LE(norm_apart(found.dvalues, expected.dvalues), 1e-2);
    for (std::size_t i = 0; i < found.log_sums.size(); ++i)
      ASSERT_NEAR(found.log_sums[i], expected.log_sums[i], 1e-3F) << i;
    const Results again = on_gpu(*made, of);
    for (const auto& [one, other] : {std::pair{&found.dqueries, &again.dqueries},
                                     {&found.dkeys, &again.dkeys},
                                     {&found.dvalues, &again.dvalues}})
      EXPECT_TRUE(std::equal(one->begin(), one->end(), other->begin(),
                             [](Bfloat16 a, Bfloat16 b) { return a.bits == b.bits; }));
  }
};

TEST_F(CudaAttention, AgreesWithItsDefinitionAndRepeatsItsBits) {
  const AttentionShape shapes[] = {{1, 64, 64, 1},      {2, 48, 128, 4},   {1, 33, 32, 4},
                                   {2, 130, 256, 2},    {1, 150, 384, 3},  {3, 96, 256, 4, 2},
                                   {1, 128, 640, 8, 1}, {2, 77, 192, 2, 2}};
  for (const AttentionShape& s : shapes) {
    SCOPED_TRACE(std::to_string(s.samples) + " x " + std::to_string(s.sequence) + ", " +
                 std::to_string(s.heads) + " heads of " + std::to_string(s.head_width()));
    expect_defined(s);
  }
}

LatentWidths widths(int plain, int rotary, int value) {
  LatentWidths all;
  all.plain = plain;
  all.rotary = rotary;
  all.value = value;
  return all;
}

/// Values beside keys, and of another width; those of DeepSeek-V3.
TEST_F(CudaAttention, TakesKeysAndValuesOfDifferentWidths) {
  for (const LatentWidths& of : {widths(16, 8, 24), widths(128, 64, 128)}) {
    SCOPED_TRACE(of.plain);
    expect_defined(exec::LatentShape{2, 70, 3, of});
  }
}

/// What FusedAttention does not ask for: heads that are too wide, or of no whole packs.
TEST_F(CudaAttention, IsNotMadeForOtherHeads) {
  exec::cuda::FusedAttention attention(*cuda_, stream(), 0);
  EXPECT_EQ(attention.of(AttentionShape{1, 16, 12, 3}), nullptr);
  EXPECT_EQ(attention.of(AttentionShape{1, 16, 272, 2}), nullptr);
  EXPECT_EQ(attention.of(exec::LatentShape{1, 16, 2, widths(128, 72, 128)}), nullptr);
  EXPECT_EQ(attention.of(exec::LatentShape{1, 16, 2, widths(16, 8, 20)}), nullptr);
  EXPECT_EQ(attention.workspace_bytes(), 0);
}

}  // namespace
}  // namespace pipewright::tests
