// The order in which the stages of a graph compute micro-batches, as a Program has it.
#pragma once

#include <vector>

#include "core/program/program.hpp"
#include "core/spmd/graph/pipeline_steps.hpp"

namespace pipewright::exec::graphs {

struct GraphSchedule {
  spmd::PipelineStages stages;
  std::vector<std::vector<Action>> lists;  // by rank of the pipeline: F, I, W and B
  std::size_t micro_batches = 1;
};

/// The computations of a Program whose stages these are; of a pair first the one and then the
/// other.
GraphSchedule schedule_of(const spmd::PipelineStages& stages, const Program& program);
/// Of a graph on one rank: each micro-batch forward and back before the next.
GraphSchedule one_after_another(const spmd::PipelineStages& stages, int micro_batches);

}  // namespace pipewright::exec::graphs
