// The nodes of all ranks' Chakra traces as one graph, and when each of them ran.
#pragma once

#include <cstddef>
#include <vector>

#include "traces/events/chakra.hpp"

namespace pipewright::traces {

/// A node by its place: ranks in the order of the traces, nodes of a rank by id.
using ChakraPlace = std::size_t;
inline constexpr ChakraPlace kNoPlace = static_cast<ChakraPlace>(-1);

struct ChakraGraph {
  std::vector<const ChakraTrace*> traces;  // which must outlive this
  std::vector<const ChakraNode*> nodes;
  std::vector<std::size_t> trace_of;            // index into `traces`
  std::vector<std::vector<ChakraPlace>> needs;  // of its own rank
  std::vector<ChakraPlace> caller;              // whom control_needs names first
  std::vector<ChakraPlace> sender;              // of a Receive the Send whose data it takes
  std::vector<std::int64_t> start_ns, end_ns;   // filled by time_nodes()
  bool is_timed = false;                        // the files say when nodes ran

  const ChakraTrace& trace(ChakraPlace place) const { return *traces[trace_of[place]]; }
};

/// A Send and a Receive belong together that agree in source, target and tag, those that agree with
/// several in the order of their ids. Throws InputError where some ranks' nodes have a start and
/// others' do not.
ChakraGraph chakra_graph(const std::vector<ChakraTrace>& traces);

/// A need of a node on another rank that no message shows.
struct ChakraEdge {
  ChakraPlace before = kNoPlace, after = kNoPlace;
};

/// Where the files have times, takes them. Else every node runs as soon as what it needs has ended
/// and, of a computation, its rank's host or device has ended the one before; of those that could
/// begin at the same time the one with the least id first, as ASTRA-sim issues them. Messages take
/// no time: what they cost is the network's. Throws InputError for nodes that could never begin.
void time_nodes(ChakraGraph& graph, const std::vector<ChakraEdge>& others);

/// "node 17 (name)", for messages.
std::string chakra_node_text(const ChakraNode& node);

}  // namespace pipewright::traces
