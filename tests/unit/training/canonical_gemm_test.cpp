// The canonical matrix product: every instruction set gives the bits of one chain of std::fma.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/base/error.hpp"
#include "exec/devices/cpu/kernels/canonical_gemm.hpp"
#include "exec/layers/ops.hpp"
#include "tests/unit/numeric.hpp"

namespace pipewright::exec::cpu {
namespace canonical_gemm_test {

using test::Floats;
using test::random_floats;

/// One product with its operands in larger matrices.
struct Case {
  GemmSize size;
  bool a_transposed = false, b_transposed = false;
  float alpha = 1, beta = 0;
  int padding = 0;  // floats behind each row
  int shift = 0;    // floats before the first element

  int a_stride() const { return (a_transposed ? size.m : size.k) + padding; }
  int b_stride() const { return (b_transposed ? size.k : size.n) + padding; }
  int c_stride() const { return size.n + padding; }
  MatrixView a(const Floats& from) const { return {from.data() + shift, a_stride(), a_transposed}; }
  MatrixView b(const Floats& from) const { return {from.data() + shift, b_stride(), b_transposed}; }
};

/// Room for `rows` rows and what is before and behind them.
std::size_t words(int rows, int stride, int shift) {
  return static_cast<std::size_t>(rows * stride + shift + 64);
}

float element(const MatrixView& m, int row, int column) {
  return m.transposed ? m.data[column * m.stride + row] : m.data[row * m.stride + column];
}

/// The definition, written down.
Floats expected(const Case& one, const Floats& a, const Floats& b, Floats c) {
  for (int i = 0; i < one.size.m; ++i) {
    for (int j = 0; j < one.size.n; ++j) {
      float& place = c[static_cast<std::size_t>(one.shift + i * one.c_stride() + j)];
      float chain = one.beta == 0.0F ? 0.0F : place;
      for (int k = 0; k < one.size.k; ++k)
        chain = std::fma(element(one.a(a), i, k), element(one.b(b), k, j), chain);
      place = one.alpha * chain;
    }
  }
  return c;
}

/// Also what lies around c has to stay as it is.
void expect_definition(const Case& one, std::uint64_t key) {
  const int a_rows = one.a_transposed ? one.size.k : one.size.m;
  const int b_rows = one.b_transposed ? one.size.n : one.size.k;
  const Floats a = random_floats(words(a_rows, one.a_stride(), one.shift), key);
  const Floats b = random_floats(words(b_rows, one.b_stride(), one.shift), key + 1);
  const Floats c = random_floats(words(one.size.m, one.c_stride(), one.shift), key + 2);
  const Floats wanted = expected(one, a, b, c);
  for (const Isa isa : available_isas()) {
    Floats found = c;
    canonical_gemm(isa, one.size, one.alpha, one.a(a), one.b(b), one.beta, found.data() + one.shift,
                   one.c_stride());
    ASSERT_EQ(std::memcmp(found.data(), wanted.data(), found.size() * sizeof(float)), 0)
        << "isa " << static_cast<int>(isa) << ", " << one.size.m << " x " << one.size.n << " x "
        << one.size.k << ", key " << key;
  }
}

TEST(CanonicalGemm, EveryInstructionSetGivesTheChainsBitsOnRandomShapes) {
  for (std::uint64_t key = 0; key < 300; ++key) {
    const auto below = [key](std::uint64_t i, std::uint64_t n) {
      return static_cast<int>(uniform_below(key_of(key, "shape"), i, n));
    };
    Case one{.size = {1 + below(0, 70), 1 + below(1, 90), 1 + below(2, 60)}};
    one.a_transposed = below(3, 2) == 1;
    one.b_transposed = below(4, 2) == 1;
    one.beta = static_cast<float>(below(5, 2));
    if (one.beta == 0.0F && below(6, 2) == 1) one.alpha = 0.3F;
    one.padding = below(7, 5);
    one.shift = below(8, 17);
    expect_definition(one, 3 * key);
  }
}

TEST(CanonicalGemm, ChainsLongerThanABlockAndMatricesLargerThanOneGoOn) {
  for (const int rows : {1, 3, 17, 170}) {
    expect_definition({.size = {rows, 35, 400}, .alpha = 0.5F}, 1);
    expect_definition({.size = {rows, 600, 7}, .b_transposed = true}, 2);
    expect_definition({.size = {rows, 33, 385}, .a_transposed = true, .beta = 1}, 3);
  }
}

TEST(CanonicalGemm, ARowAloneHasTheBitsThatItHasAmongOthers) {
  constexpr int kRows = 50, kWidth = 100, kOut = 70;
  const Floats x = random_floats(kRows * kWidth, 1), w = random_floats(kWidth * kOut, 2);
  Floats together(kRows * kOut), alone(kRows * kOut);
  linear_forward({kRows, kWidth, kOut}, x.data(), w.data(), together.data(), Numerics::Exact);
  for (int r = 0; r < kRows; ++r)
    linear_forward({1, kWidth, kOut}, x.data() + r * kWidth, w.data(), alone.data() + r * kOut,
                   Numerics::Exact);
  EXPECT_EQ(together, alone);
}

TEST(CanonicalGemm, KnowsTheProductOfSmallIntegers) {
  const Floats a{1, 2, 3, 4, 5, 6}, b{7, 8, 9, 10, 11, 12};
  for (const Isa isa : available_isas()) {
    Floats c{1, 1, 1, 1};
    canonical_gemm(isa, {2, 2, 3}, 1, {a.data(), 3}, {b.data(), 2}, 0, c.data(), 2);
    EXPECT_EQ(c, (Floats{58, 64, 139, 154}));
  }
}

TEST(CanonicalGemm, AFactorInTheMiddleOfAChainIsABug) {
  const Floats one{1};
  Floats c{1};
  EXPECT_THROW(
      canonical_gemm(Isa::Scalar, {1, 1, 1}, 2, {one.data(), 1}, {one.data(), 1}, 1, c.data(), 1),
      Bug);
}

}  // namespace canonical_gemm_test
}  // namespace pipewright::exec::cpu
