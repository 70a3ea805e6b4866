#include "exec/base/fixed_point.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/base/error.hpp"

namespace pipewright::exec {
namespace {

constexpr int kLowBits = 60, kHighFraction = 20;
constexpr std::int64_t kLowMask = (std::int64_t{1} << kLowBits) - 1;
/// A high word stays below this in size, so that the sum of two still fits 64 bits.
constexpr std::int64_t kMostHigh = std::int64_t{1} << 62;
constexpr float kMost = 0x1p42F, kToHigh = 0x1p20F, kToLow = 0x1p60F;

bool add_words(std::int64_t by_high, std::int64_t by_low, std::int64_t& high, std::int64_t& low) {
  low += by_low;
  high += by_high + (low >> kLowBits);
  low &= kLowMask;
  return -kMostHigh < high && high < kMostHigh;
}

template <class Float>
bool add_float(Float x, std::int64_t& high, std::int64_t& low) {
  if (!(std::fabs(x) < Float{kMost})) return false;  // NaN too
  const Float scaled = x * Float{kToHigh};
  const auto whole = static_cast<std::int64_t>(scaled);
  const Float rest = scaled - static_cast<Float>(whole);  // exact: bits of scaled
  return add_words(whole, static_cast<std::int64_t>(rest * Float{kToLow}), high, low);
}

#if defined(__x86_64__)

/// The forms with a mask, because GCC 12 takes the others for reads of what was never written.
constexpr __mmask8 kAll = 0xFF;

/// Eight sums; the mask tells those that left the range.
__attribute__((target("avx512f,avx512dq"))) inline __mmask8 add_eight(__m256 scaled,
                                                                      std::int64_t* high,
                                                                      std::int64_t* low) {
  const __m512i whole = _mm512_cvttps_epi64(scaled);
  const __m256 rest = _mm256_sub_ps(scaled, _mm512_cvtepi64_ps(whole));
  const __m512i by_low = _mm512_cvttps_epi64(_mm256_mul_ps(rest, _mm256_set1_ps(kToLow)));
  const __m512i sum = _mm512_add_epi64(_mm512_load_si512(low), by_low);
  const __m512i carry = _mm512_maskz_srai_epi64(kAll, sum, kLowBits);
  const __m512i above = _mm512_add_epi64(_mm512_load_si512(high), _mm512_add_epi64(whole, carry));
  _mm512_store_si512(low, _mm512_and_si512(sum, _mm512_set1_epi64(kLowMask)));
  _mm512_store_si512(high, above);
  return _mm512_cmpge_epi64_mask(_mm512_maskz_abs_epi64(kAll, above), _mm512_set1_epi64(kMostHigh));
}

/// The same as add_float() for the first `n` elements, a multiple of 16.
__attribute__((target("avx512f,avx512dq"))) bool add_sixteens(std::size_t n, const float* x,
                                                              std::int64_t* high,
                                                              std::int64_t* low) {
  const __m512 most = _mm512_set1_ps(kMost);
  const __m256 to_high = _mm256_set1_ps(kToHigh);
  unsigned bad = 0;
  for (std::size_t i = 0; i < n; i += 16) {
    bad |= _mm512_cmp_ps_mask(_mm512_abs_ps(_mm512_loadu_ps(x + i)), most, _CMP_NLT_UQ);
    for (std::size_t at = i; at < i + 16; at += 8)
      bad |= add_eight(_mm256_mul_ps(_mm256_loadu_ps(x + at), to_high), high + at, low + at);
  }
  return bad == 0;
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512dq") != 0;
}

#endif

/// The number high · 2^60 + low, rounded once. At most 62 of its leading bits go into an integer;
/// whether anything but zeros is cut off stays visible in the last of them.
float rounded(std::int64_t high, std::int64_t low) {
  const int room = std::countl_zero(static_cast<std::uint64_t>(high < 0 ? ~high : high)) - 1;
  const int shift = std::min(room, kLowBits);
  const int cut = kLowBits - shift;
  std::int64_t leading = (high << shift) + (low >> cut);
  if ((low & ((std::int64_t{1} << cut) - 1)) != 0) leading |= 1;
  const auto exponent = static_cast<std::uint32_t>(127 - kHighFraction - shift);
  return static_cast<float>(leading) * std::bit_cast<float>(exponent << 23);
}

}  // namespace

bool FixedPoint::add(double x) { return add_float(x, high, low); }

bool FixedPoint::add(const FixedPoint& other) {
  return add_words(other.high, other.low, high, low);
}

double FixedPoint::value() const {
  return std::ldexp(static_cast<double>(high), -kHighFraction) +
         std::ldexp(static_cast<double>(low), -kHighFraction - kLowBits);
}

FixedPointSums::FixedPointSums(Words high, Words low)
    : high_(std::move(high)), low_(std::move(low)) {
  PIPEWRIGHT_ASSERT(high_.size() == low_.size(), "half a fixed-point sum");
}

void FixedPointSums::clear() {
  std::fill(high_.begin(), high_.end(), 0);
  std::fill(low_.begin(), low_.end(), 0);
}

bool FixedPointSums::add(std::span<const float> x) {
  PIPEWRIGHT_ASSERT(x.size() == size(), "sums and summands differ in number");
  std::size_t done = 0;
  bool fine = true;
#if defined(__x86_64__)
  if (has_avx512()) {
    done = x.size() - x.size() % 16;
    fine = add_sixteens(done, x.data(), high_.data(), low_.data());
  }
#endif
  for (std::size_t i = done; i < x.size(); ++i) fine &= add_float(x[i], high_[i], low_[i]);
  return fine;
}

bool FixedPointSums::add(const FixedPointSums& other) {
  PIPEWRIGHT_ASSERT(other.size() == size(), "sums of different arrays");
  bool fine = true;
  for (std::size_t i = 0; i < size(); ++i)
    fine &= add_words(other.high_[i], other.low_[i], high_[i], low_[i]);
  return fine;
}

void FixedPointSums::round_to(std::span<float> x) const {
  PIPEWRIGHT_ASSERT(x.size() == size(), "sums and results differ in number");
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = rounded(high_[i], low_[i]);
}

}  // namespace pipewright::exec
