// How far two runs of one model agree: their gradients and parameters, array by array
// (docs/metrics.md). Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exec/runtime/verify_report.hpp"
#include "exec/training/parameter_views.hpp"

namespace pipewright::exec {

/// Compares what the stages of a run hold with the serial run. Arrays are found by name; each array
/// of the reference must be there once, whatever the order, else it is a Bug.
VerifyReport verify(std::span<const ParameterView> run, std::span<const ParameterView> reference);

/// The views of several stages, pointers to any device's, one after another.
template <class Stages>
std::vector<ParameterView> parameters_of(const Stages& stages) {
  std::vector<ParameterView> all;
  for (const auto* stage : stages) {
    std::vector<ParameterView> own = stage->parameters();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

/// |a - b| in units in the last place of `scale` (> 0), a float's, rounded up; the largest integer
/// if one is no finite number.
std::int64_t ulps_apart(float a, float b, double scale);

}  // namespace pipewright::exec
