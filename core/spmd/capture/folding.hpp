// Nodes whose inputs are all known are computed while the graph is captured: most of them compute
// shapes, positions and masks.
#pragma once

#include "core/spmd/capture/node_reading.hpp"

namespace pipewright::spmd::capture {

/// The one output of a node. None where an input is computed, or the node's kind is not known here,
/// or there are more elements than kMostFolded.
std::optional<Constant> folded(const NodeReading& node);

}  // namespace pipewright::spmd::capture
