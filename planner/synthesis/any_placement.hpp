// Synthesis that chooses the placement too: loops, V's and waves with several stages a rank, of one
// model that is cut into as many stages (core/costs/cost_text.hpp, resampled()).
#pragma once

#include "planner/synthesis/synthesis.hpp"

namespace pipewright::planner {

/// `by_rank`: a request with one stage a rank, whose costs are what the ranks have; its placement
/// and starts are not looked at. The result's order has its own placement; its costs are
/// resampled(by_rank.costs, order->placement). It is never worse than a named synchronous schedule
/// with one copy of the weights at any number of stages a rank that is tried, nor than one with two
/// copies where each stage has a constant part of memory and the limit so counts both. Up to 8
/// stages a rank, fewer where an order would be long, at least 2. The effort is that of
/// synthesise() for all placements together; making the named orders is taken off a budget in time,
/// of which at least a quarter is left. Deterministic and throws as synthesise().
SynthesisResult synthesise_any_placement(const SynthesisRequest& by_rank);

}  // namespace pipewright::planner
