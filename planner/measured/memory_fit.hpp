// How much of what the estimate says of memory devices really hold, from what was measured and from
// what ran out of memory (docs/decisions/0048-measured-steps.md). Pure functions.
#pragma once

#include <vector>

namespace pipewright::planner {

/// The fullest device of a configuration; bytes.
struct MemoryRow {
  double predicted = 0;  // by the estimate as it is
  double measured = 0;   // 0: nobody has looked
  bool ran = true;       // false: it ran out of memory
};

struct MemoryFit {
  double scale = 1;      // of all that devices hold
  double deviation = 0;  // of the logarithm of what a configuration holds that was not measured
};

/// The largest of likelihood times prior of one factor, a normal one around 1: a measured peak is a
/// normal deviate of its logarithm, and "it ran" and "it ran out" are that it lies on this or that
/// side of `limit` (Tobin 1958, doi:10.2307/1907382). `limit`: what a device may hold, 0: nobody
/// knows, and then only peaks count. Rows none of which tells a peak or ran out leave 1.
MemoryFit fit_memory(const std::vector<MemoryRow>& rows, double limit);

/// How likely a configuration is to stay within `limit`; `predicted`: as the fit says it, bytes. 1
/// without a limit.
double chance_to_fit(const MemoryFit& fit, double predicted, double limit);

}  // namespace pipewright::planner
