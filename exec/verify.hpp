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
  /// Most floating-point numbers that lie between two elements, plus one; 0 if all are equal.
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

/// Floating-point numbers between a and b, counting one end: 0 for equal ones (0 and -0 included),
/// the largest integer if one is NaN.
std::int64_t ulp_distance(float a, float b);

}  // namespace pipewright::exec
