// Lower bounds on the step of any plan of a model that is planned layer by layer, from its mesh and
// its stages. The search uses them where costs come from a profile or from operation counts. Pure
// functions; nanoseconds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/plan/job.hpp"
#include "planner/bounds/wires.hpp"
#include "planner/costs/cost_model.hpp"
#include "planner/estimate/setup.hpp"

namespace pipewright::planner {

/// What the schedules that a job allows have in common.
struct CommonOfSchedules {
  bool one_rank_a_stage = true;  // of each replica
  bool whole_ranks = true;       // a rank has at least one stage; none shares out micro-batches
  bool synchronous = true;       // each rank updates once, after all its computations
  bool any_named = false;
};
/// Looks at the schedules that `schedule_mode` names; where it names none, at those that the search
/// tries by itself. Throws InputError for a name that is no schedule.
CommonOfSchedules common_of(const Choice& schedule_mode);

/// A step that no schedule on this mesh beats, whatever the cut, from two bounds: a replica's work
/// for all its micro-batches, its updates and the latencies of its reductions, divided among its
/// ranks; and one micro-batch's way up through all F and down through all I (or B, where that is
/// shorter). On one rank, where no
/// schedule is named, the whole model's reduction comes after all work.
std::int64_t least_layer_step(const CostModel& costs, const Job& job, const ParallelSetup& mesh,
                              const CommonOfSchedules& common);

/// Where the mesh has replicas, fills `reduce` and `unshard` of the stages with the least time that
/// moving a stage's parameters takes: the ring of CostTable::collective_time() over one of its
/// edges, that from the last replica to the first.
void set_least_reductions(std::vector<StageCosts>& stage_costs, const CostModel& costs,
                          const Job& job, const ParallelSetup& mesh,
                          std::span<const StagePlan> stages);

/// The messages of each replica that has routes of its own.
std::vector<Wires> layer_wires(const CostModel& costs, const Job& job, const ParallelSetup& mesh,
                               std::span<const StagePlan> stages);

}  // namespace pipewright::planner
