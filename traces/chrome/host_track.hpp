// The process "host" of a measured trace: what the command did, and the parts of the step. Used by
// traces/chrome/trace.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/timeline/timeline.hpp"

namespace pipewright::traces {

/// A phase of the whole command, such as "initialize"; they follow one another.
struct HostPhase {
  std::string name;
  std::int64_t duration_ns = 0;
};

/// A slice on the host's tracks. `true_ns` is what it really took.
struct HostSlice {
  std::string name;
  std::int64_t start_ns = 0, end_ns = 0, true_ns = 0;
};

/// The phases side by side over [0, end_ns), each as wide as its share: a command takes seconds and
/// the step that the trace shows milliseconds, which would vanish beside it.
std::vector<HostSlice> scaled_phases(const std::vector<HostPhase>& phases, std::int64_t end_ns);

/// Paddle's three parts of a step: forward until the first I, W or B begins on any rank, backward
/// until the first OPT, update until the last end. A part that is not there is left out.
std::vector<HostSlice> parts_of_step(const Program& program, const Timeline& timeline);

}  // namespace pipewright::traces
