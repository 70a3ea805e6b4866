// Groups whose calls leave behind when they ran, for the timeline of a graph's pipeline.
#pragma once

#include <memory>
#include <vector>

#include "exec/spmd/moves.hpp"
#include "exec/spmd/rank_outcome.hpp"

namespace pipewright::exec::graphs {

/// The parts of actions that one rank has done, in their order.
struct PartSpans {
  bool is_open = false;  // what is done now is a part of an action
  std::vector<ActionSpan> spans = {};
};

/// The same groups; while `parts` is open, each call of those with two members or more is added to
/// it. It has to outlive them.
GroupsByRanks timed(GroupsByRanks groups, PartSpans& parts);

}  // namespace pipewright::exec::graphs
