// How far two runs of one model agree: their gradients and parameters, array by array
// (docs/metrics.md). Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "exec/cpu/stage.hpp"

namespace pipewright::exec {

/// Distance of some arrays from their references.
struct Difference {
  /// Euclidean norm of the difference over that of the reference; 0 if they are equal, infinite if
  /// only the reference is 0, NaN if a NaN stands where the reference has a number.
  double norm_rel = 0;
  /// The largest difference of two elements, in units in the last place of the reference's element
  /// or, where that is smaller, of the root mean square of all the reference's elements, rounded
  /// up; 0 if all are equal. A number near zero is what large ones leave when they cancel: it is as
  /// exact as they are, and in units of its own its rounding says nothing.
  std::int64_t max_ulp = 0;
  bool bitwise = true;
  /// The array with the largest norm_rel of its own, and that; empty if all agree.
  std::string worst;
  double worst_norm_rel = 0;
};

struct VerifyReport {
  Difference gradients, parameters;
  int compared = 0;                    // arrays
  Numerics numerics = Numerics::Fast;  // of both runs
};

/// Compares what the stages of a run hold with the serial run. Arrays are found by name; each array
/// of the reference must be there once, whatever the order, else it is a Bug.
VerifyReport verify(std::span<const cpu::ParameterView> run,
                    std::span<const cpu::ParameterView> reference);

/// The views of several stages, one behind the other.
std::vector<cpu::ParameterView> parameters_of(std::span<const cpu::Stage* const> stages);

/// |a - b| in units in the last place of `scale` (> 0), a float's, rounded up; the largest integer
/// if one is no finite number.
std::int64_t ulps_apart(float a, float b, double scale);

}  // namespace pipewright::exec
