// How much of a critical path would change with something: what hints at the gain, and bounds it
// where nothing but data and order hold anything back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/what_if/timed_program.hpp"
#include "traces/analysis/critical_path.hpp"

namespace pipewright::sim {

/// A change, for how long what it changes is on the path, and by how much the path gets shorter.
struct OnPath {
  Change change;
  std::int64_t ns = 0, shorter_ns = 0;
};

/// Each action, rank, stage, micro-batch or link on the path, a tenth faster. The longest on it
/// first; of equal ones the earlier.
std::vector<OnPath> on_path(WhatOf of, const TimedProgram& program,
                            std::span<const traces::PathStep> path);

/// For how long what any of the changes changes is on the path. Of Stages and MicroBatches: all
/// computations.
std::int64_t time_on_path(std::span<const Change> changes, const TimedProgram& program,
                          std::span<const traces::PathStep> path);

}  // namespace pipewright::sim
