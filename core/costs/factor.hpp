// What a duration is multiplied by: one rule of rounding for everybody who asks "and if this were
// faster". Pure functions.
#pragma once

#include <cstdint>

#include "core/base/units.hpp"

namespace pipewright {

/// A decimal number of six places, exactly: 900,000 millionths are 0.9.
struct Factor {
  static constexpr std::int64_t kOne = 1'000'000;
  std::int64_t millionths = kOne;

  double value() const { return static_cast<double>(millionths) / static_cast<double>(kOne); }
  bool operator==(const Factor&) const = default;
};

/// n · f to the nearest whole number, halves up; no more than a file may say, unless n is. `n` is
/// not negative.
std::int64_t scaled(std::int64_t n, Factor f);
Nanoseconds scaled(Nanoseconds time, Factor f);
/// One after the other.
Factor product(Factor a, Factor b);

}  // namespace pipewright
