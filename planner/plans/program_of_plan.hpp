// From a plan to its order and its Program. The tools use these functions for simulate, check and
// run alike, so that all of them read the same Program. Thread-safe.
#pragma once

#include <span>

#include "core/order/order.hpp"
#include "core/plan/plan.hpp"
#include "core/program/lower.hpp"
#include "core/program/program.hpp"
#include "core/program/wait_for.hpp"
#include "core/timeline/timeline.hpp"

namespace pipewright::planner {

/// The plan's own order, or the one that its schedule makes, of one replica. Throws InputError if
/// the schedule refuses the plan's sizes or the order does not fit the plan's stages, ranks and
/// micro-batches.
Order pipeline_order(const Plan& plan);
/// The same for all the plan's replicas (planner/plans/data_parallel.hpp), or with the parts of its
/// actions for the one that stands for all.
Order order_of_plan(const Plan& plan);

/// The plan's costs with those of its parts: F, I, W and B as long as they take with their calls,
/// as far as these have weights.
CostTable costs_of_whole_actions(const Plan& plan);

/// What a training asks of lower(): the update, with the norm where it clips, what replicas divide,
/// and the sums of what these stages of the model have in common.
LowerOptions lowering_of_training(const TrainingSpec& training, const Sharding& sharding,
                                  const Model& model, std::span<const StagePlan> stages);
LowerOptions lowering_of_plan(const Plan& plan);
/// order_of_plan() lowered under the plan's policy, with the update at the end of each rank.
Program program_of_plan(const Plan& plan);

/// Simulates the plan under its own costs and fills plan.predicted. Where the Program does not end,
/// the report says why and plan.predicted stays as it was.
WaitReport fill_prediction(Plan& plan);
/// The same by simulating the first `replicas` of the plan's under `costs`, which are theirs. The
/// caller knows that replica d of the plan does at each moment what replica d mod `replicas` of
/// these does.
WaitReport fill_prediction(Plan& plan, const CostTable& costs, int replicas);

}  // namespace pipewright::planner
