// A graph of which a few tensors and operators are annotated, and what follows for all others; a
// reshard stands where a tensor is made or taken otherwise than it lies.
#pragma once

#include "core/spmd/graph/process_meshes.hpp"
#include "core/spmd/graph/propagation.hpp"
#include "core/spmd/reshard.hpp"

namespace pipewright::spmd {

/// Between an operator that makes a tensor and the tensor, or between the tensor and operators that
/// take it in one layout.
struct GraphReshard {
  std::size_t tensor = 0;
  bool is_made = false;  // by the one operator, else taken by these
  std::vector<std::size_t> operators = {};
  std::size_t from_mesh = 0, to_mesh = 0;  // of the graph's
  Layout from = {}, to = {};
  ReshardPlan plan = {};
};

struct Completion {
  OperatorGraph graph;                 // with an annotation of everything
  std::vector<GraphReshard> reshards;  // in the order of the operators
  Propagation why;
  GraphMeshes meshes = {};
};

/// Annotations stay as they are, so a completed graph completes to itself. Throws InputError, with
/// the names of operators and tensors: annotations that contradict each other at one operator, or
/// that do not fit their mesh.
Completion completed(const OperatorGraph& graph);

/// Bytes of all reshards, each of its busiest process.
std::int64_t bytes_of(const std::vector<GraphReshard>& reshards);

}  // namespace pipewright::spmd
