// The closed estimate of the command `estimate`, fitted to measured steps
// (docs/decisions/0048-measured-steps.md).
#pragma once

#include "planner/estimate/parallel_search.hpp"
#include "planner/search/measured_fit.hpp"

namespace pipewright::planner {

/// Of the job its architecture, cluster, batch and measured steps count. Throws InputError, with
/// its place, for a step that is no configuration of the job, or has a schedule that the closed
/// estimate does not know.
MeasuredFit fit_closed_estimate(const Job& job, const FrameworkTraits& framework,
                                const ParallelSpace& space);

/// search_parallel() with such a fit.
ParallelResult search_fitted(const Job& job, const FrameworkTraits& framework,
                             const ParallelSpace& space, const MeasuredFit& fit, int keep,
                             bool exhaustive);

}  // namespace pipewright::planner
