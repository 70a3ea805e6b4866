// Fewer replicas in the place of all, where they are alike: what the search simulates of a mesh of
// many replicas that is planned layer by layer. Pure functions.
#pragma once

#include <span>

#include "core/costs/costs.hpp"
#include "core/plan/job.hpp"
#include "planner/bounds/layer_bounds.hpp"
#include "planner/costs/cost_model.hpp"
#include "planner/estimate/setup.hpp"

namespace pipewright::planner {

/// How many replicas, from the first on, have routes between their ranks that no earlier one has.
/// They sit one after the other on the devices, so how a replica lies in its nodes comes again
/// after as many replicas as fill whole nodes.
int replicas_that_differ(const Cluster& cluster, const ParallelSetup& mesh);

/// Those that differ, and two at least, where they tell what all do: all that a replica shares with
/// the others are the reductions of single stages, which begin for all at once, when the slowest is
/// there. So not where gradients are clipped or weights are tied (collectives of ranks that
/// differ), on nodes that differ or share ports, and on this machine's cores. Else all.
int replicas_to_simulate(const Job& job, const ParallelSetup& mesh,
                         const CommonOfSchedules& common);

/// The table of that many replicas: CostModel::table() of these, with reductions as long as those
/// of all replicas of the mesh.
CostTable table_of_some(const CostModel& costs, const Job& job, const ParallelSetup& mesh,
                        std::span<const StagePlan> stages, int replicas);

}  // namespace pipewright::planner
