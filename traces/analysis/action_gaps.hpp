// What lies between two actions of a rank when nothing has to be waited for: the device's own
// overhead for an action (launching, events). Pure function; nanoseconds.
#pragma once

#include <cstdint>
#include <vector>

#include "core/program/program.hpp"
#include "core/timeline/timeline.hpp"

namespace pipewright::traces {

/// From the end of each computation to the start of the next one of the same rank, ascending: of
/// those whose other inputs had all ended by then, with no communication on the compute lane in
/// between. Actions that overlap by the clock count as 0.
std::vector<std::int64_t> action_gaps(const Program& program, const Timeline& timeline);

}  // namespace pipewright::traces
