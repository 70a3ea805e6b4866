// The clocks of ranks brought together by the messages between them
// (docs/decisions/0050-clocks-of-traces.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "traces/analysis/messages.hpp"

namespace pipewright::traces {

/// Two clocks are taken to run apart by no more than this: the most that NTP corrects a clock by
/// (RFC 5905, 500 PPM).
inline constexpr double kMostDrift = 500e-6;

/// What is added to the times of a rank: shift + drift * (time + shift - ClockFit::middle_ns).
struct ClockShift {
  int rank = 0;
  std::int64_t shift_ns = 0;
  /// What the messages allow for it, whatever the clocks drift by up to kMostDrift: none may end
  /// before it began. Both 0 for the first rank, whose clock the others get.
  std::int64_t least_ns = 0, most_ns = 0;
  bool bounded = true;  // false: no messages with it in one of the directions
  double drift = 0;     // 50e-6: it gains 50 us a second; found only where the messages need it
};

struct ClockFit {
  std::vector<ClockShift> shifts;  // by index of rank
  std::int64_t middle_ns = 0;      // by the first rank's clock, of all messages
  bool agreed = true;              // the clocks were right as they stand: nothing is shifted
  std::size_t messages = 0;
  /// How many messages would end before they began by the clocks as they stand, the worst by how
  /// much, and the same of the clocks set right.
  std::size_t acausal_before = 0, acausal_after = 0;
  std::int64_t worst_before_ns = 0, worst_after_ns = 0;
};

/// Throws InputError, blaming `source`, if the messages contradict each other whatever the clocks,
/// or do not bound a clock that is wrong.
ClockFit fit_clocks(const std::vector<Message>& messages, const std::vector<int>& ranks,
                    const std::string& source);

/// What is to be added to a time of the rank's clock.
std::int64_t correction_at(const ClockFit& fit, std::size_t rank, std::int64_t time_ns);

}  // namespace pipewright::traces
