// The operator graph as a partial order of elements and a hypergraph of nets: what is left once
// everything that must share a device is one thing. Plain data, pure functions.
//
// Elements. All nodes of a colour are one element, forward and backward alike. The order comes from
// the forward nodes; a colour with backward nodes only takes its place from the mirror image of its
// backward edges. Elements on a cycle of that order must share a device and become one (Tarnawski
// et al., NeurIPS 2020, on colocation and on training). Elements without any latency that hang on a
// single neighbour join it where this can neither cost time nor memory.
//
// Nets. A node's output costs a device its output cost when producer and consumers are not all on
// one side: the sender pays once, every receiver pays once. So with the net {element of the node,
// elements of its consumers} a device pays exactly for the nets that its set cuts.
#pragma once

#include <vector>

#include "planner/graph_partition/instance.hpp"

namespace pipewright::planner {

struct Net {
  double cost = 0;
  std::vector<int> pins;  // elements, ascending, at least two
};

struct Element {
  double cpu_latency = 0;
  double accelerator_latency = 0;
  double bytes = 0;
  bool runs_on_accelerator = true;
  std::vector<int> nodes;          // indices into the graph
  std::vector<int> before, after;  // direct neighbours in the order
  std::vector<int> nets;
};

struct ElementOrder {
  std::vector<Element> elements;  // in a topological order
  std::vector<Net> nets;
};

ElementOrder elements_of(const OperatorGraph& graph);

}  // namespace pipewright::planner
