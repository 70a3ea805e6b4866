// From a request for the schedule `auto` to synthesis, for callers that want to see the bound.
#pragma once

#include <string>

#include "planner/schedules/registry.hpp"
#include "planner/synthesis/synthesis.hpp"

namespace pipewright::planner {

/// What the schedule `auto` searches for: placement loop, v or any, objective makespan or span,
/// backward split or fused, and seed by the request's parameters. Only for a request that is not
/// refused.
SynthesisRequest synthesis_request(const ScheduleRequest& request);
/// Whether the request's costs are those of the ranks and the search chooses how many stages each
/// has, and where: placement any.
bool chooses_placement(const ScheduleRequest& request);
/// `wanted`: synthesis_request(request) with an effort of the caller's.
SynthesisResult synthesise_for(const ScheduleRequest& request, const SynthesisRequest& wanted);

/// The sentence for a result without an order.
std::string least_limit_text(const SynthesisResult& result);

}  // namespace pipewright::planner
