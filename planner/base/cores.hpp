// How many cores this process may use at once.
#pragma once

#include <optional>
#include <string_view>

namespace pipewright::planner {

/// The cores that the affinity mask names (taskset, cpusets, a batch system), but no more than the
/// CPU quota of the process's control groups (version 2) allows, rounded down; at least 1.
/// Searches, profiles and predictions all use this count.
int cores_of_this_machine();

/// The whole cores that the text of a cpu.max file, "QUOTA PERIOD" in microseconds, allows, at
/// least 1; nullopt without a quota ("max 100000").
std::optional<int> cores_of_quota(std::string_view cpu_max);

}  // namespace pipewright::planner
