// How many of a mesh's replicas the search simulates, and with which table, where replicas are
// alike and the model is planned layer by layer. Pure functions.
#pragma once

#include <optional>
#include <span>

#include "core/costs/costs.hpp"
#include "core/plan/job.hpp"
#include "planner/bounds/layer_bounds.hpp"
#include "planner/costs/cost_model.hpp"
#include "planner/estimate/setup.hpp"

namespace pipewright::planner {

/// How many replicas, counted from the first, have routes between their ranks that no earlier
/// replica has. Replicas sit on the devices one after the other, so their places in the nodes
/// repeat after as many replicas as fill whole nodes.
int replicas_that_differ(const Cluster& cluster, const ParallelSetup& mesh);

/// As many as differ, at least two, where these show what all replicas do: then replicas share only
/// the reductions of single stages, each of which begins for all at once, when the slowest is
/// there. All replicas where gradients are clipped or weights are tied (collectives of ranks that
/// differ), where they form groups, on nodes that differ or share ports, and on this machine's
/// cores.
int replicas_to_simulate(const Job& job, const ParallelSetup& mesh,
                         const CommonOfSchedules& common);

/// What reducing so many bytes among a rank's replicas takes by the cluster's own prices (its
/// section "collectives"); nullopt where it has none, and a ring over routes counts. Rank r of
/// replica d sits on device (d * P + r) * tp.
std::optional<Nanoseconds> priced_reduction(const Job& job, const ParallelSetup& mesh, int rank,
                                            Bytes parameters);

/// The ranks that divide the state of a stage among them, and those that share its gradients.
StateShards shards_of(const Job& job, const ParallelSetup& mesh);

/// The cost table of that many replicas: CostModel::table() with reductions as long as those of all
/// replicas of the mesh.
CostTable table_of_some(const CostModel& costs, const Job& job, const ParallelSetup& mesh,
                        std::span<const StagePlan> stages, int replicas);

}  // namespace pipewright::planner
