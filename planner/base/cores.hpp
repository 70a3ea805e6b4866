// How many cores this process may use at once.
#pragma once

#include <optional>
#include <string_view>

namespace pipewright::planner {

/// Those that its affinity mask names (taskset, cpusets, a batch system), and no more than the CPU
/// quota of its control groups (version 2) pays for, rounded down; at least 1. The same for every
/// user of the count: searches, profiles, predictions.
int cores_of_this_machine();

/// Of the text of a cpu.max, "QUOTA PERIOD" in microseconds: the whole cores, at least 1; nothing
/// without a quota ("max 100000").
std::optional<int> cores_of_quota(std::string_view cpu_max);

}  // namespace pipewright::planner
