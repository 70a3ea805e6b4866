// From a request for the schedule `auto` to synthesis, for callers that want to see the bound.
#pragma once

#include <string>

#include "planner/schedules/registry.hpp"
#include "planner/synthesis/synthesis.hpp"

namespace pipewright::planner {

/// What the schedule `auto` searches for: placement loop or v, objective makespan or span, backward
/// split or fused, and seed by the request's parameters. Only for a request that is not refused.
SynthesisRequest synthesis_request(const ScheduleRequest& request);

/// The sentence for a result without an order.
std::string least_limit_text(const SynthesisResult& result);

}  // namespace pipewright::planner
