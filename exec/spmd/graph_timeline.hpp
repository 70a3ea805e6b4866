// What ran of a graph's pipeline as the timeline of its Program.
#pragma once

#include "core/timeline/timeline.hpp"
#include "exec/spmd/graph_schedule.hpp"
#include "exec/spmd/rank_outcome.hpp"

namespace pipewright::exec::graphs {

/// A rank of the Program is a mesh, and what its first process did. Messages take no time of their
/// own: they leave when what makes them has ended, and are waited for until an action begins.
/// `spans` are by process, as a training has them.
Timeline timeline_of(const Program& program, const spmd::OperatorGraph& completed,
                     const spmd::PipelineStages& stages, const std::map<int, RankSpans>& spans);

}  // namespace pipewright::exec::graphs
