// What an export says where its tool numbers ranks in another order than the plan's mesh. Pure
// functions.
#pragma once

#include <string>

#include "planner/export/export.hpp"

namespace pipewright::planner {

/// `inside`: whether the tool's own order has the pipeline inside data parallelism. `fix`: what
/// gives the plan's order there, or that nothing does. A note only where the two differ.
void note_rank_order(const Plan& plan, const std::string& tool, bool inside, const std::string& fix,
                     ExportedPlan& result);

}  // namespace pipewright::planner
