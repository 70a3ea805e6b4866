// How much the schedules of repeated building blocks hold: the part of planner/closed_form.hpp that
// is about them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "planner/schedules/registry.hpp"

namespace pipewright::planner {

/// Live chunk activations at most, by rank, of v-half, v-min, 1f1b-v and grouped-interleaved, for a
/// request that is not refused. nullopt for other schedules, and where so few micro-batches are
/// asked for that the repeated block is not reached on every rank. Pure.
std::optional<std::vector<int>> block_peaks(std::string_view schedule,
                                            const ScheduleRequest& request);

}  // namespace pipewright::planner
