// A completed graph whose stages train micro-batches in the order of a schedule, as a Program.
#pragma once

#include "core/cluster/cluster.hpp"
#include "core/order/order.hpp"
#include "core/spmd/graph/training_steps.hpp"
#include "core/timeline/timeline.hpp"
#include "exec/spmd/graph_schedule.hpp"
#include "tools/cli/session.hpp"

namespace pipewright::tools {

struct GraphProgram {
  std::string title;  // "1f1b: p=2 m=8"
  Order order;        // a rank of it is a mesh, its actions have the stages' parts
  Program program;
  CostTable costs;
  Figures expected = {};  // of a step on the cluster
  exec::graphs::GraphSchedule schedule;
};

/// Throws InputError: the schedule has no such order, or its stages elsewhere, or replicas of them,
/// or updates within a step; RunError where the Program would not end.
GraphProgram graph_program(const spmd::OperatorGraph& completed, const spmd::PipelineStages& stages,
                           const spmd::TrainingSteps& steps, const Cluster& cluster);

/// The step as it is expected on the cluster.
std::string expected_text(const GraphProgram& one, const std::string& cluster);
Json expected_json(const GraphProgram& one, const std::string& cluster);

}  // namespace pipewright::tools
