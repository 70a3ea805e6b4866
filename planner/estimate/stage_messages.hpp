// Messages between neighbours of the pipeline: activations forward, their gradients back, by the
// route that each takes and by what the framework sends. Pure functions; seconds.
#pragma once

#include <vector>

#include "planner/estimate/setup.hpp"

namespace pipewright::planner {

/// The border between pipeline ranks r and r + 1, for one micro-batch.
struct BorderSeconds {
  double forward = 0, backward = 0;
  double held = 0;  // of these, messages too long for a buffer, which the receiver has to take
};

/// By border; empty without a pipeline. All devices of a node that send over the network do so at
/// the same time and share its ports.
std::vector<BorderSeconds> border_seconds(const Architecture& model,
                                          const FrameworkTraits& framework, const Machine& machine,
                                          const ParallelSetup& setup);

/// The time of the pipeline, and how much longer messages make it.
struct PipelineSeconds {
  double all = 0, transfers = 0;
};

/// 1F1B, interleaved where `chunks` > 1, of ranks that take `rank_seconds` for the forward and the
/// backward of a micro-batch.
PipelineSeconds pipeline_seconds(const FrameworkTraits& framework, const ParallelSetup& setup,
                                 const std::vector<double>& rank_seconds,
                                 const std::vector<BorderSeconds>& borders);

}  // namespace pipewright::planner
