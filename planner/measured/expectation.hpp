// What measuring a configuration is expected to gain (docs/decisions/0049-measuring-search.md).
// Times are lognormal; seconds. Pure functions.
#pragma once

namespace pipewright::planner {

/// What is known of a configuration that was not measured.
struct Outlook {
  double seconds = 0;    // the median of its step
  double deviation = 0;  // of the logarithm
  double fits = 1;       // the chance that it stays within its memory
};

/// Seconds that it is expected to save against `best`, where what does not fit saves nothing.
double expected_improvement(const Outlook& outlook, double best);

/// How likely it fits and takes less than `seconds`.
double chance_below(const Outlook& outlook, double seconds);

}  // namespace pipewright::planner
