#include "exec/devices/cpu/kernels/canonical_kernels.hpp"

#include <array>
#include <cmath>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pipewright::exec::cpu {
namespace {

constexpr int kScalarRows = 4, kScalarColumns = 8;

void scalar_tile(int rows, const Tile& t) {
  for (int r = 0; r < rows; ++r) {
    for (int j = 0; j < t.columns; ++j) {
      float* const c = t.c + static_cast<std::ptrdiff_t>(r) * t.c_stride + j;
      float chain = t.continues ? *c : 0.0F;
      for (std::ptrdiff_t k = 0; k < t.depth; ++k)
        chain = std::fma(t.a[k * rows + r], t.b[k * t.b_stride + j], chain);
      *c = t.factor * chain;
    }
  }
}

#if defined(__x86_64__)

// The accumulators of a tile have to stay in registers: the loops over them are unrolled whole.
#define PIPEWRIGHT_UNROLLED _Pragma("GCC unroll 16")

constexpr int kRows512 = 14, kColumns512 = 32;

template <int Rows>
__attribute__((target("avx512f"))) void tile_512(const Tile& t) {
  const auto wanted = t.columns >= 32 ? 0xFFFFFFFFU : (1U << t.columns) - 1;
  const auto left = static_cast<__mmask16>(wanted);
  const auto right = static_cast<__mmask16>(wanted >> 16);
  __m512 c0[Rows], c1[Rows];
  PIPEWRIGHT_UNROLLED
  for (int r = 0; r < Rows; ++r) {
    const float* const c = t.c + static_cast<std::ptrdiff_t>(r) * t.c_stride;
    c0[r] = t.continues ? _mm512_maskz_loadu_ps(left, c) : _mm512_setzero_ps();
    c1[r] = t.continues ? _mm512_maskz_loadu_ps(right, c + 16) : _mm512_setzero_ps();
  }
  const float* a = t.a;
  const float* b = t.b;
  for (int k = 0; k < t.depth; ++k, a += Rows, b += t.b_stride) {
    const __m512 b0 = _mm512_loadu_ps(b), b1 = _mm512_loadu_ps(b + 16);
    PIPEWRIGHT_UNROLLED
    for (int r = 0; r < Rows; ++r) {
      const __m512 one = _mm512_set1_ps(a[r]);
      c0[r] = _mm512_fmadd_ps(one, b0, c0[r]);
      c1[r] = _mm512_fmadd_ps(one, b1, c1[r]);
    }
  }
  const __m512 factor = _mm512_set1_ps(t.factor);
  PIPEWRIGHT_UNROLLED
  for (int r = 0; r < Rows; ++r) {
    float* const c = t.c + static_cast<std::ptrdiff_t>(r) * t.c_stride;
    _mm512_mask_storeu_ps(c, left, _mm512_mul_ps(factor, c0[r]));
    _mm512_mask_storeu_ps(c + 16, right, _mm512_mul_ps(factor, c1[r]));
  }
}

constexpr int kRows256 = 6, kColumns256 = 16;

template <int Rows>
__attribute__((target("avx2,fma"))) void tile_256(const Tile& t) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i left = _mm256_cmpgt_epi32(_mm256_set1_epi32(t.columns), lanes);
  const __m256i right = _mm256_cmpgt_epi32(_mm256_set1_epi32(t.columns - 8), lanes);
  __m256 c0[Rows], c1[Rows];
  PIPEWRIGHT_UNROLLED
  for (int r = 0; r < Rows; ++r) {
    const float* const c = t.c + static_cast<std::ptrdiff_t>(r) * t.c_stride;
    c0[r] = t.continues ? _mm256_maskload_ps(c, left) : _mm256_setzero_ps();
    c1[r] = t.continues ? _mm256_maskload_ps(c + 8, right) : _mm256_setzero_ps();
  }
  const float* a = t.a;
  const float* b = t.b;
  for (int k = 0; k < t.depth; ++k, a += Rows, b += t.b_stride) {
    const __m256 b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + 8);
    PIPEWRIGHT_UNROLLED
    for (int r = 0; r < Rows; ++r) {
      const __m256 one = _mm256_broadcast_ss(a + r);
      c0[r] = _mm256_fmadd_ps(one, b0, c0[r]);
      c1[r] = _mm256_fmadd_ps(one, b1, c1[r]);
    }
  }
  const __m256 factor = _mm256_set1_ps(t.factor);
  PIPEWRIGHT_UNROLLED
  for (int r = 0; r < Rows; ++r) {
    float* const c = t.c + static_cast<std::ptrdiff_t>(r) * t.c_stride;
    _mm256_maskstore_ps(c, left, _mm256_mul_ps(factor, c0[r]));
    _mm256_maskstore_ps(c + 8, right, _mm256_mul_ps(factor, c1[r]));
  }
}

#undef PIPEWRIGHT_UNROLLED

/// The instances for 1 … sizeof...(R) rows.
template <int... R>
constexpr auto tiles_512(std::integer_sequence<int, R...>) {
  return std::array{&tile_512<R + 1>...};
}
template <int... R>
constexpr auto tiles_256(std::integer_sequence<int, R...>) {
  return std::array{&tile_256<R + 1>...};
}

void run_512(int rows, const Tile& t) {
  static constexpr auto tiles = tiles_512(std::make_integer_sequence<int, kRows512>());
  tiles[static_cast<unsigned>(rows - 1)](t);
}

void run_256(int rows, const Tile& t) {
  static constexpr auto tiles = tiles_256(std::make_integer_sequence<int, kRows256>());
  tiles[static_cast<unsigned>(rows - 1)](t);
}

#endif

}  // namespace

std::span<const Isa> available_isas() {
  static constexpr std::array all{Isa::Scalar, Isa::Avx2, Isa::Avx512};
  std::size_t count = 1;
#if defined(__x86_64__)
  const bool has_256 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  if (has_256) count = __builtin_cpu_supports("avx512f") != 0 ? 3 : 2;
#endif
  return std::span(all).first(count);
}

TileKernel tile_kernel(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::Avx512) return {kRows512, kColumns512, run_512};
  if (isa == Isa::Avx2) return {kRows256, kColumns256, run_256};
#endif
  static_cast<void>(isa);
  return {kScalarRows, kScalarColumns, scalar_tile};
}

}  // namespace pipewright::exec::cpu
