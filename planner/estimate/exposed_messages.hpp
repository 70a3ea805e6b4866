// What of a block's tensor parallel messages is not hidden behind its products. Pure functions;
// seconds.
#pragma once

#include "planner/estimate/block_kernels.hpp"

namespace pipewright::planner {

/// message_seconds(), less what the framework overlaps. The rules and their sources:
/// docs/cost-model.md, "Messages beside products".
BlockMessages exposed_messages(const FrameworkTraits& framework, const NodeRates& node,
                               int devices_per_node, const ParallelSetup& setup,
                               const BlockWork& work);

}  // namespace pipewright::planner
