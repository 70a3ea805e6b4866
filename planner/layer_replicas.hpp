// Fewer replicas in the place of all, where they are alike: what the search simulates of a mesh of
// many replicas that is planned layer by layer. Pure functions.
#pragma once

#include <span>

#include "core/costs.hpp"
#include "core/job.hpp"
#include "planner/cost_model.hpp"
#include "planner/estimate/setup.hpp"
#include "planner/layer_bounds.hpp"

namespace pipewright::planner {

/// Two where two tell what all do: each replica has the same routes between its ranks, and all that
/// it shares with the others are the reductions of single stages, which begin for all at once. So
/// not where gradients are clipped or weights are tied (collectives of ranks that differ), on nodes
/// that differ or share ports, on this machine's cores, and where replicas lie differently in their
/// nodes. Else all.
int replicas_to_simulate(const Job& job, const ParallelSetup& mesh,
                         const CommonOfSchedules& common);

/// The table of that many replicas: CostModel::table() of these, with reductions as long as those
/// of all replicas of the mesh.
CostTable table_of_some(const CostModel& costs, const Job& job, const ParallelSetup& mesh,
                        std::span<const StagePlan> stages, int replicas);

}  // namespace pipewright::planner
