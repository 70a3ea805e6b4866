// Topological orders of the elements, and the ideals that lie along one: what is cut where a graph
// has too many ideals for all of them (Tarnawski et al., NeurIPS 2020, on linearisation). Pure; the
// same number gives the same order everywhere.
#pragma once

#include <vector>

#include "planner/graph_partition/ideals.hpp"

namespace pipewright::planner {

/// Order 0 goes on with what has just become possible (depth first), 1 with what has waited longest
/// (breadth first), all others draw among what is possible.
std::vector<int> topological_order(const ElementOrder& order, int number);

/// The ideals along it: as many as elements, and the empty one.
IdealLattice chain_of(const std::vector<int>& sequence);

}  // namespace pipewright::planner
