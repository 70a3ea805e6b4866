// The messages of a ZeRO 3 that exchanges each tensor by itself, as DeepSpeed did until November
// 2021 (deepspeed/runtime/zero, partition_parameters.py and stage3.py). Pure functions.
#pragma once

#include "planner/estimate/step_parts.hpp"

namespace pipewright::planner {

/// What is used again within so many numbers is not let go (stage3_max_reuse_distance).
inline constexpr double kReuseDistance = 1e9;

/// weights_of(), whose messages are those that gather a matrix or scatter the gradient of a matrix,
/// a norm's or a bias' tensor (which stay whole on every device, and of which each is gathered
/// after the update: stage3_param_persistence_threshold); with those matrices of a block that are
/// gathered once more, for its forward that is computed again: by the time of their backward they
/// were let go.
RangeWeights weights_by_tensor(const Architecture& model, const FrameworkTraits& framework,
                               const ParallelSetup& setup, const LayerRange& range);

/// Numbers of a block's largest matrix on one device.
double widest_tensor(const Architecture& model, const FrameworkTraits& framework,
                     const ParallelSetup& setup, BlockKind kind);

}  // namespace pipewright::planner
