#include "exec/collectives/summation.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "core/base/error.hpp"

namespace pipewright::exec::collectives {
namespace {

// Floats of a block that stays in the first cache until all members have been added.
constexpr std::size_t kBlock = 2048;

/// `sum` may be either of the two.
void add_two(const float* a, const float* b, float* sum, std::size_t n) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < n; ++i) sum[i] = a[i] + b[i];
}

void add_floats(std::span<const std::byte* const> summands, std::size_t size, float* result) {
  std::array<float, kBlock> sum;
  for (std::size_t at = 0; at < size; at += kBlock) {
    const std::size_t n = std::min(kBlock, size - at);
    const auto summand = [&](std::size_t k) {
      return reinterpret_cast<const float*>(summands[k]) + at;
    };
    if (summands.size() == 1) {
      std::memmove(result + at, summand(0), n * sizeof(float));
      continue;
    }
    const float* so_far = summand(0);
    for (std::size_t k = 1; k + 1 < summands.size(); ++k) {
      add_two(so_far, summand(k), sum.data(), n);
      so_far = sum.data();
    }
    add_two(so_far, summand(summands.size() - 1), result + at, n);
  }
}

bool add_exactly(std::span<const std::byte* const> summands, std::size_t size, float* result) {
  bool fine = true;
  FixedPointSums sums;
  for (std::size_t at = 0; at < size; at += kBlock) {
    const std::size_t n = std::min(kBlock, size - at);
    if (sums.size() == n)
      sums.clear();
    else
      sums = FixedPointSums(n);
    for (const std::byte* summand : summands)
      fine = fine && sums.add({reinterpret_cast<const float*>(summand) + at, n});
    sums.round_to({result + at, n});
  }
  return fine;
}

bool add_fixed_points(std::span<const std::byte* const> summands, std::size_t size,
                      FixedPoint* result) {
  bool fine = true;
  for (std::size_t i = 0; i < size; ++i) {
    FixedPoint sum;
    for (const std::byte* summand : summands)
      fine = fine && sum.add(reinterpret_cast<const FixedPoint*>(summand)[i]);
    result[i] = sum;
  }
  return fine;
}

}  // namespace

std::size_t element_bytes(SumKind kind) {
  return kind == SumKind::FixedPoints ? sizeof(FixedPoint) : sizeof(float);
}

Summands::Summands(std::span<float> values, Numerics numerics)
    : at(reinterpret_cast<std::byte*>(values.data())),
      size(values.size()),
      kind(numerics == Numerics::Exact ? SumKind::ExactFloats : SumKind::Floats) {}

Summands::Summands(std::span<FixedPoint> values)
    : at(reinterpret_cast<std::byte*>(values.data())),
      size(values.size()),
      kind(SumKind::FixedPoints) {}

bool add_up(SumKind kind, std::span<const std::byte* const> summands, std::size_t size,
            std::byte* result) {
  PIPEWRIGHT_ASSERT(!summands.empty(), "a sum of no arrays");
  switch (kind) {
    case SumKind::Floats:
      add_floats(summands, size, reinterpret_cast<float*>(result));
      return true;
    case SumKind::ExactFloats:
      return add_exactly(summands, size, reinterpret_cast<float*>(result));
    case SumKind::FixedPoints:
      return add_fixed_points(summands, size, reinterpret_cast<FixedPoint*>(result));
  }
  return true;
}

}  // namespace pipewright::exec::collectives
