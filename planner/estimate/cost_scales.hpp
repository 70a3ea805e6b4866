// What measured steps change of the estimate: factors of its rates. Pure functions.
#pragma once

#include "planner/estimate/coefficients.hpp"

namespace pipewright::planner {

/// 1 leaves the estimate as it is.
struct CostScales {
  double time = 1;      // of all times
  double messages = 1;  // of a byte's time on every link; starts stay as they are
  double launches = 1;  // of the host's time to start a kernel
  double memory = 1;    // of all that devices hold
};

Machine scaled(Machine machine, const CostScales& scales);
FrameworkTraits scaled(FrameworkTraits framework, const CostScales& scales);

}  // namespace pipewright::planner
