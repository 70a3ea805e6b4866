// The analytical estimate below the stage: of which computations and messages F, B and I of each
// stage consist (docs/semantics.md §3.4, docs/cost-model.md). Pure functions.
#pragma once

#include <span>
#include <vector>

#include "core/order/parts.hpp"
#include "planner/estimate/stage_estimate.hpp"

namespace pipewright::planner {

struct StageParts {
  /// Weights of computations and of calls are nanoseconds. W's have no messages and no list.
  std::vector<ActionParts> parts;
  /// The costs given, less what the calls of each action take: an action with its parts takes what
  /// it took without them, to the nanosecond.
  std::vector<StageCosts> computations;
};

/// `whole`: the stages' costs (estimated_stage_costs()), times `scale`. Groups are called "tp",
/// "cp" and "ep" (core/plan/rank_axes.hpp). No parts where nothing is sent inside a stage, and
/// where expert parallel ranks are context parallel ones, too: these have no axis of their own.
StageParts estimated_stage_parts(const EstimateContext& context, const ParallelSetup& setup,
                                 std::span<const StagePlan> stages,
                                 std::span<const StageCosts> whole, double scale);

/// Its `computations` alone.
std::vector<StageCosts> estimated_stage_computations(const EstimateContext& context,
                                                     const ParallelSetup& setup,
                                                     std::span<const StagePlan> stages,
                                                     std::span<const StageCosts> whole,
                                                     double scale);

}  // namespace pipewright::planner
