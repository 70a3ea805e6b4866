// The bubbles of a step, from what its ranks do.
#pragma once

#include "core/timeline/timeline.hpp"

namespace pipewright {

/// Sets both ratios from the makespan and each rank's busy_ns and span_ns (docs/metrics.md).
void set_ratios(Figures& figures);

}  // namespace pipewright
