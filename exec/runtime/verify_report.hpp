// How far two runs of one model agree (exec/devices/cpu/verify.hpp), as a run reports it. Plain
// data.
#pragma once

#include <cstdint>
#include <string>

#include "exec/base/numerics.hpp"

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

/// The gradients of whichever is further from its reference, and the parameters: of several steps
/// or parts of a model. NaN is further than every number.
VerifyReport worse_of(const VerifyReport& a, const VerifyReport& b);

}  // namespace pipewright::exec
