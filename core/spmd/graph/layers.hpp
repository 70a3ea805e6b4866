// The layers of a graph, told from the names of its operators, and the even parts into which they
// are cut: PaddlePaddle's vpp_seg_method.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/spmd/graph/graph.hpp"

namespace pipewright::spmd {

/// Operators that follow one another.
struct GraphLayer {
  std::string name;
  std::size_t first = 0, last = 0;  // places in a program's order, both of it
};

/// The order of a program: of all operators that have what they take always the one that is listed
/// first. A list that is a program already is taken as it stands.
std::vector<std::size_t> program_order(const OperatorGraph& graph);

/// The layers that a method names. "uniform": every operator is of one, called by what stands
/// before the first "/" of its name. "layer:PATTERN": of the operators with the pattern in their
/// name (case ignored), called by what stands from there to the next "/". Throws InputError, with
/// the names: a pattern that is none or that no operator has, an operator between layers that is of
/// none, a layer whose operators do not follow one another.
std::vector<GraphLayer> layers_of(const OperatorGraph& graph,
                                  const std::vector<std::size_t>& program,
                                  const std::string& method);

/// By part how many layers: those that a pattern names are as many in each, of others the last
/// parts have one more. Throws InputError where they cannot be.
std::vector<std::size_t> sizes_of_parts(const std::vector<GraphLayer>& layers, std::size_t parts,
                                        const std::string& method);

}  // namespace pipewright::spmd
