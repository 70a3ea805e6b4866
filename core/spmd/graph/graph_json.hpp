// Operator graphs as files: pipewright.graph/1 (docs/distributed-tensors.md).
#pragma once

#include "core/base/json.hpp"
#include "core/spmd/graph/graph.hpp"

namespace pipewright::spmd {

inline constexpr std::size_t kMostGraphMeshes = 256, kMostMeshRanks = 64, kMostTensors = 10'000,
                             kMostOperators = 10'000, kMostGraphDims = 8;

/// Throws InputError with file and place: names that are not there, a tensor that two operators
/// make, operators in a circle, shapes that do not fit. "reshards", which completion adds, are
/// passed over.
OperatorGraph read_graph(const JsonCursor& document);
/// With its schema; what is not annotated is left out.
Json to_json(const OperatorGraph& graph);

/// {"dims_mapping": [0, -1, [0, 1]], "partial": {"1": "sum"}}.
Json layout_to_json(const Layout& layout);

}  // namespace pipewright::spmd
