// The update of a parameter's part, and what the optimizer keeps of it.
#pragma once

#include <vector>

#include "core/spmd/graph/graph_optimizer.hpp"
#include "exec/spmd/local_array.hpp"

namespace pipewright::exec::graphs {

/// In the order of spmd::states_of().
using PartStates = std::vector<LocalArray>;

/// As an optimizer begins with them.
PartStates first_states(spmd::GraphOptimizer::Kind kind, const spmd::LocalPart& part);

/// `step` counts from 0.
void update_part(const spmd::GraphOptimizer& optimizer, int step, const LocalArray& gradient,
                 LocalArray& value, PartStates& states);

}  // namespace pipewright::exec::graphs
