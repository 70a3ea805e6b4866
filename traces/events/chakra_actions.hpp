// Which action of a pipeline each node of Chakra's traces is a part of.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "core/order/action.hpp"
#include "traces/events/chakra_graph.hpp"

namespace pipewright::traces {

struct ChakraActions {
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<Cell> cells;      // of each action
  std::vector<std::size_t> of;  // by place: the action; kNone: of none
};

/// The action that a name stands for; nullopt for none.
using CellOfName = std::optional<Cell> (*)(std::string_view);

/// By the names of nodes ("PP:0F3"): a node is part of the action that it or who called it is named
/// after. Empty where no node is named after a computation.
ChakraActions named_actions(const ChakraGraph& graph, CellOfName cell_of_name);

/// That an action needs what another rank's makes, for traces whose messages do not say from whom
/// they come.
std::vector<ChakraEdge> needs_between(const ChakraGraph& graph, const ChakraActions& actions);

/// By the way of each micro-batch from rank to rank, of a graph whose nodes have times: forward
/// along the stages, and back the same way. An action is what a rank computes from one message to
/// the next and, where names say "fwd" or "forward", "bwd" or "backward", "optimizer" or "update",
/// from one such word to another; where none says so, every computation is an action. What neither
/// takes nor gives a message is the optimizer. Throws InputError where that is no pipeline.
ChakraActions recovered_actions(const ChakraGraph& graph);

/// The messages that a computation waits for, itself or through nodes that compute nothing; and the
/// last computation before a Send.
std::vector<ChakraPlace> messages_into(const ChakraGraph& graph, ChakraPlace place);
ChakraPlace source_of_message(const ChakraGraph& graph, ChakraPlace send);

}  // namespace pipewright::traces
