// How repeated measurements of one duration are spread: seven quantiles, the mean and the count.
// Small enough to stand in a file for every layer, and enough to draw from.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/base/json.hpp"
#include "core/base/units.hpp"

namespace pipewright {

struct Distribution {
  /// Where the quantiles lie: least, 10 %, 25 %, 50 %, 75 %, 90 %, most.
  static constexpr std::array<double, 7> kShares = {0, 0.1, 0.25, 0.5, 0.75, 0.9, 1};

  std::int64_t count = 0;  // 0: nothing was measured, and all else is 0
  Nanoseconds mean;
  std::array<Nanoseconds, 7> quantiles;  // ascending, at kShares

  Nanoseconds median() const { return quantiles[3]; }
  /// The mean of the middle four fifths, read off the quantiles.
  Nanoseconds middle_mean() const;
  /// The duration below which the given share (0 to 1) of the measurements lies: straight lines
  /// between the quantiles, and above 90 % a power of the share, such that the mean of all is that
  /// of the measurements. One outlier among thousands so counts as one.
  double at(double share) const;

  bool operator==(const Distribution&) const = default;

 private:
  double ns_at(std::size_t i) const { return static_cast<double>(quantiles[i].value); }
  double steepness_of_tail() const;  // the power
};

/// A quantile is one of the measurements where it falls on one, else between its neighbours.
Distribution distribution_of(std::vector<std::int64_t> samples_ns);

/// {"count", "mean_ns", "quantiles_ns": [7 ascending numbers]}
Distribution read_distribution(const JsonCursor& value);
Json to_json(const Distribution& distribution);

}  // namespace pipewright
