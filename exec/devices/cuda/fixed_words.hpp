// The sums of exec/base/fixed_point.hpp, element by element for a GPU: a number is
// high · 2^-20 + low · 2^-80 with 0 <= low < 2^60. Adding integers is associative, so neither the
// order nor the grid shows in a sum. Pure functions and plain data.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "exec/base/host_device.hpp"

namespace pipewright::exec::cuda {

struct FixedWords {
  std::int64_t high = 0, low = 0;

  /// False if the sum left the range.
  PIPEWRIGHT_HOST_DEVICE bool add(const FixedWords& other) {
    constexpr std::int64_t kMostHigh = std::int64_t{1} << 62;
    low += other.low;
    high += other.high + (low >> 60);
    low &= (std::int64_t{1} << 60) - 1;
    return -kMostHigh < high && high < kMostHigh;
  }
  /// False also if x is not a number below 2^42.
  template <class Float>
  PIPEWRIGHT_HOST_DEVICE bool add_number(Float x) {
    if (!(std::fabs(x) < Float{0x1p42F})) return false;
    const Float scaled = x * Float{0x1p20F};
    const auto whole = static_cast<std::int64_t>(scaled);
    const Float rest = scaled - static_cast<Float>(whole);
    return add({whole, static_cast<std::int64_t>(rest * Float{0x1p60F})});
  }
};

PIPEWRIGHT_HOST_DEVICE inline int leading_zeros(std::uint64_t x) {
#if defined(__CUDA_ARCH__)
  return __clzll(static_cast<long long>(x));
#else
  return x == 0 ? 64 : __builtin_clzll(x);
#endif
}

/// The nearest float, ties to even: at most 62 leading bits go into an integer, and whether
/// anything but zeros is cut off stays visible in the last of them.
PIPEWRIGHT_HOST_DEVICE inline float rounded(const FixedWords& sum) {
  const std::int64_t high = sum.high;
  const int room = leading_zeros(static_cast<std::uint64_t>(high < 0 ? ~high : high)) - 1;
  const int shift = room < 60 ? room : 60;
  const int cut = 60 - shift;
  std::int64_t leading = (high << shift) + (sum.low >> cut);
  if ((sum.low & ((std::int64_t{1} << cut) - 1)) != 0) leading |= 1;
  return static_cast<float>(leading) *
         std::bit_cast<float>(static_cast<std::uint32_t>(127 - 20 - shift) << 23);
}

struct FixedAdd {
  float* gradient;
  std::int64_t *high, *low;
  int* bad;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    FixedWords sum{high[i], low[i]};
    if (!sum.add_number(gradient[i])) *bad = 1;
    high[i] = sum.high;
    low[i] = sum.low;
    gradient[i] = 0.0F;
  }
};

struct FixedRound {
  const std::int64_t *high, *low;
  float* gradient;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    gradient[i] = rounded({high[i], low[i]});
  }
};

/// Squares below 1 and from there on, each in its own unit (exec/training/gradient_norm.hpp).
struct SquareWords {
  FixedWords small, large;

  PIPEWRIGHT_HOST_DEVICE bool add_square_of(float x) {
    const double value = x, square = value * value;
    return square < 1.0 ? small.add_number(square) : large.add_number(square / 0x1p40);
  }
  PIPEWRIGHT_HOST_DEVICE bool add(const SquareWords& other) {
    const bool fine = small.add(other.small);
    return large.add(other.large) && fine;
  }
  PIPEWRIGHT_HOST_DEVICE double value() const { return value_of(small) + value_of(large) * 0x1p40; }

 private:
  PIPEWRIGHT_HOST_DEVICE static double value_of(const FixedWords& sum) {
    return static_cast<double>(sum.high) * 0x1p-20 + static_cast<double>(sum.low) * 0x1p-80;
  }
};

/// Lane `lane` of `lanes` sums every lanes-th element into partial[lane].
struct SquareLane {
  std::size_t work() const { return n; }

  std::size_t n, lanes;
  const float* x;
  SquareWords* partial;
  int* bad;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t lane) const {
    SquareWords sum;
    bool fine = true;
    for (std::size_t i = lane; i < n; i += lanes) fine = sum.add_square_of(x[i]) && fine;
    if (!fine) *bad = 1;
    partial[lane] = sum;
  }
};

/// The same of what `from` lanes have left.
struct SquareLevel {
  std::size_t from, lanes;
  const SquareWords* partial;
  SquareWords* next;
  int* bad;
  std::size_t work() const { return from; }
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t lane) const {
    SquareWords sum;
    bool fine = true;
    for (std::size_t i = lane; i < from; i += lanes) fine = sum.add(partial[i]) && fine;
    if (!fine) *bad = 1;
    next[lane] = sum;
  }
};

/// A single element: adds all lanes to the total.
struct SquareTotal {
  std::size_t lanes;
  const SquareWords* partial;
  SquareWords* total;
  int* bad;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t) const {
    SquareWords sum = *total;
    bool fine = true;
    for (std::size_t lane = 0; lane < lanes; ++lane) fine = sum.add(partial[lane]) && fine;
    if (!fine) *bad = 1;
    *total = sum;
  }
};

/// As exec/training/gradient_norm.cpp has it, operation for operation.
PIPEWRIGHT_HOST_DEVICE inline float clip_factor(double squares, double most) {
  const double norm = std::sqrt(squares);
  return norm > most ? static_cast<float>(most / norm) : 1.0F;
}

/// A single element: from the ranks' totals to the factor.
struct ClipFactor {
  std::size_t count;
  const SquareWords* totals;
  double most;
  float* factor;
  int* bad;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t) const {
    SquareWords sum;
    bool fine = true;
    for (std::size_t i = 0; i < count; ++i) fine = sum.add(totals[i]) && fine;
    if (!fine) *bad = 1;
    *factor = clip_factor(sum.value(), most);
  }
};

/// A single element: a rank's total as one number.
struct SquaresAsNumber {
  const SquareWords* total;
  double* squares;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t) const { *squares = total->value(); }
};

/// A single element: the factor of the sum of such numbers.
struct ClipFactorOfNumber {
  const double* squares;
  double most;
  float* factor;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t) const {
    *factor = clip_factor(*squares, most);
  }
};

}  // namespace pipewright::exec::cuda
