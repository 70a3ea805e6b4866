// Of what the actions of stages consist whose layers are divided among the devices of a rank, where
// costs go layer by layer. Pure function.
#pragma once

#include <span>

#include "core/model/model.hpp"
#include "core/plan/plan.hpp"
#include "planner/costs/cost_model.hpp"
#include "planner/estimate/setup.hpp"
#include "planner/estimate/stage_parts.hpp"

namespace pipewright::planner {

/// The parts of the model's layers (exec/layers/divided/divided_parts.hpp), weighed in nanoseconds:
/// an action with its parts takes what it took without them. No parts where nothing is divided.
/// `recompute` by layer.
StageParts divided_stage_parts(const CostModel& costs, const Model& model,
                               std::span<const LayerRecompute> recompute, const ParallelSetup& mesh,
                               std::span<const StagePlan> stages,
                               std::span<const StageCosts> whole);

}  // namespace pipewright::planner
