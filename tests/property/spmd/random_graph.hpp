// Graphs of a few random operators, annotated here and there, with what each operator computes.
#pragma once

#include "core/spmd/graph/graph.hpp"
#include "tests/property/spmd/small_operators.hpp"
#include "tests/support/draw.hpp"

namespace pipewright::spmd::test {

struct RandomGraph {
  OperatorGraph graph;
  std::vector<std::function<std::vector<Array>(const Computation&)>> compute;  // by operator
};

/// The ranks of a mesh of this shape, from `first` on.
ProcessMesh mesh_at(std::vector<int> shape, int first);

RandomGraph random_graph(pipewright::test::Draw& draw);

}  // namespace pipewright::spmd::test
