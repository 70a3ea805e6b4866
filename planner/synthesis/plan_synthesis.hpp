// Synthesis for a plan: the same stages on the same ranks, another order.
#pragma once

#include <string>
#include <vector>

#include "core/plan/plan.hpp"
#include "planner/synthesis/synthesis.hpp"

namespace pipewright::planner {

struct PlanSynthesis {
  SynthesisResult result;  // under preset ideal, with the updates that end the ranks
  /// The plan with the order that was found and its prediction under the plan's own policy;
  /// nothing where that is not faster than the plan's own order, or does not end.
  std::optional<Plan> plan;
  std::string why;  // in one sentence, what came of it
};

/// `settings` gives objective, seed, budget, proof and progress; placement, costs, limit and the
/// order to begin with are the plan's and `memory_limit` (one for every rank, or by rank; 0 or
/// empty: none). A value for every plan; throws InputError for one that does not fit its own order.
PlanSynthesis synthesise_for_plan(const Plan& plan, const std::vector<Bytes>& memory_limit,
                                  const SynthesisRequest& settings);

}  // namespace pipewright::planner
