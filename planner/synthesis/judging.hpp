// From a plan's stages to a synthesis under preset `ideal`, and back to orders that a simulation
// under the plan's own policy decides among. Pure functions.
#pragma once

#include <span>
#include <vector>

#include "core/plan/plan.hpp"
#include "planner/synthesis/synthesis.hpp"

namespace pipewright::planner {

/// Orders that are judged besides the best: SynthesisRequest::runners_up.
inline constexpr int kRunnersUp = 7;

/// What each rank may hold between its actions if it is to keep to its limit while they run, too
/// (StageMemory::in_f and its like). `limits`: one for all ranks or by rank; empty or 0: none.
std::vector<Bytes> limits_between_actions(const std::vector<Bytes>& limits,
                                          std::span<const StagePlan> stages, int ranks,
                                          const CostTable& costs);

/// The orders that were found and those that the request starts with, each as it is and with its
/// waits as empty cells (planner/synthesis/idle_slots.hpp): which of the two is faster depends on
/// the policy.
std::vector<Order> orders_to_judge(const SynthesisRequest& request, const SynthesisResult& found);

}  // namespace pipewright::planner
