// What of a block's tensor parallel messages is not hidden behind its products. Pure functions;
// seconds.
#pragma once

#include "planner/estimate/block_kernels.hpp"

namespace pipewright::planner {

/// Of `sent` (message_seconds()), as the framework overlaps them. The rules and their sources:
/// docs/cost-model.md, "Messages beside products".
BlockMessages exposed_messages(const FrameworkTraits& framework, const DeviceRates& device,
                               const ParallelSetup& setup, const BlockWork& work,
                               BlockMessages sent);

}  // namespace pipewright::planner
