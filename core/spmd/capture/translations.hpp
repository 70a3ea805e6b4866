// Kinds of nodes as operators of a graph.
#pragma once

#include "core/spmd/capture/graph_building.hpp"

namespace pipewright::spmd::capture {

/// The values of a node's outputs, the first ones.
using Outputs = std::vector<Value>;

struct Translation {
  std::string_view type;  // of the node
  Outputs (*translate)(const NodeReading&, GraphBuilding&) = nullptr;
};

/// By what they do to elements.
std::vector<Translation> pointwise_translations();
std::vector<Translation> arranging_translations();
std::vector<Translation> summing_translations();  // products, sums, norms, losses

}  // namespace pipewright::spmd::capture
