// Sums of floats that do not depend on the order of adding: fixed-point numbers of 123 bits, for
// each element of an array one. Adding integers is associative; adding floats is not.
//
// The unit is 2^-80, about 8e-25: a summand is rounded towards zero to a multiple of it, so one of
// at least 2^-57 (7e-18) counts with all its bits. Sums reach up to 2^42, about 4e12. A sum that
// leaves this range, and NaN and infinity, are reported, never swallowed. Owns its numbers; one
// thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exec/base/buffer.hpp"

namespace pipewright::exec {

/// One such number: high · 2^-20 + low · 2^-80 with 0 <= low < 2^60.
struct FixedPoint {
  std::int64_t high = 0, low = 0;

  /// False if x is not finite or the sum left the range.
  [[nodiscard]] bool add(double x);
  [[nodiscard]] bool add(const FixedPoint& other);
  double value() const;

  bool operator==(const FixedPoint&) const = default;
};

class FixedPointSums {
 public:
  using Words = std::vector<std::int64_t, AlignedAllocator<std::int64_t>>;

  FixedPointSums() = default;
  /// So many sums, all 0.
  explicit FixedPointSums(std::size_t size) : high_(size, 0), low_(size, 0) {}
  /// From words() of each half. Bug if they differ in size.
  FixedPointSums(Words high, Words low);

  std::size_t size() const { return high_.size(); }
  void clear();

  /// Adds x[i] to sum i. False if one is not finite or a sum left the range: then the sums mean
  /// nothing any more. Bug if the sizes differ.
  [[nodiscard]] bool add(std::span<const float> x);
  [[nodiscard]] bool add(const FixedPointSums& other);

  /// The floats nearest to the sums, ties to even.
  void round_to(std::span<float> x) const;

  /// Sum i is high()[i] · 2^-20 + low()[i] · 2^-80 with 0 <= low()[i] < 2^60: one way only to write
  /// a number, so equal sums have equal words.
  const Words& high() const { return high_; }
  const Words& low() const { return low_; }

  bool operator==(const FixedPointSums&) const = default;

 private:
  Words high_, low_;
};

}  // namespace pipewright::exec
