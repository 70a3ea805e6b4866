// What a prediction misses, by least squares over the computations of two timelines of one order:
//
//     measured = overhead + predicted * (scale of its kind + contention * others)
//
// `others` is how many other ranks computed meanwhile, on average over the measured action: what
// each of them takes away of shared cores, caches or memory bandwidth. Actions whose residual is
// beyond eight median residuals (the core was taken away for a while) are left out, and the rest is
// fitted again. What the timelines cannot tell apart (an overhead where all actions of a kind are
// predicted alike; contention where the others are always as many) is left to the scales.
// Neither overhead nor contention can be below 0.
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "traces/analysis/trace_timeline.hpp"

namespace pipewright::traces {

struct KindScale {
  std::string kind;  // as in Comparison
  double scale = 1;
};

struct Fit {
  std::vector<KindScale> scales;      // of the kinds that occur with a predicted time
  std::optional<double> overhead_ns;  // nullopt: cannot be told apart, counted as 0
  std::optional<double> contention;   // for each other rank; nullopt: cannot be told apart
  double mean_others = 0;             // ranks that computed at the same time, mean over the actions
  std::int64_t actions = 0, left_out = 0;
  /// Sum of |measured - prediction| over the actions that were kept, in percent of their measured
  /// time.
  double error_percent_before = 0, error_percent_after = 0;

  /// The scale of a kind with the contention of the mean action; 1 for a kind that did not occur.
  double factor_of(const std::string& kind) const;
};

/// nullopt if no computation is in both.
std::optional<Fit> fit(const TraceTimeline& predicted, const TraceTimeline& measured);

}  // namespace pipewright::traces
