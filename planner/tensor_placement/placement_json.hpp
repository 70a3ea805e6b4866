// A placement as JSON.
#pragma once

#include "core/base/json.hpp"
#include "planner/tensor_placement/placement.hpp"

namespace pipewright::planner::tensor_placement {

/// Times in nanoseconds, bytes of the busiest process. Of one that was not found: "verdict" and
/// "least_bytes".
Json to_json(const GraphPlacement& placement);
Json to_json(const std::vector<OtherHome>& homes, const GraphPlacement& placement);

}  // namespace pipewright::planner::tensor_placement
