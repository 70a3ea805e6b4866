// What makes a graph a pipeline: its file's "pipeline", and flags that say otherwise.
#pragma once

#include <vector>

#include "core/spmd/graph/graph.hpp"
#include "tools/cli/command.hpp"

namespace pipewright::tools {

std::vector<Flag> pipeline_flags();
/// As the flags say, with parts placed as the schedule has its stages. Throws InputError.
void take_pipeline_flags(const Arguments& arguments, spmd::OperatorGraph& graph);

}  // namespace pipewright::tools
