// How far two runs of one model agree: their gradients and parameters, array by array
// (docs/metrics.md). Pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "exec/devices/cpu/stage.hpp"
#include "exec/runtime/verify_report.hpp"

namespace pipewright::exec {

/// Compares what the stages of a run hold with the serial run. Arrays are found by name; each array
/// of the reference must be there once, whatever the order, else it is a Bug.
VerifyReport verify(std::span<const cpu::ParameterView> run,
                    std::span<const cpu::ParameterView> reference);

/// The views of several stages, one after another.
std::vector<cpu::ParameterView> parameters_of(std::span<const cpu::Stage* const> stages);

/// |a - b| in units in the last place of `scale` (> 0), a float's, rounded up; the largest integer
/// if one is no finite number.
std::int64_t ulps_apart(float a, float b, double scale);

}  // namespace pipewright::exec
