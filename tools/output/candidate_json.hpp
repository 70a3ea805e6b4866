// A row of the tuner's table as JSON.
#pragma once

#include "core/base/json.hpp"
#include "planner/configurations/candidate.hpp"

namespace pipewright::tools {

Json candidate_fields(const planner::Candidate& candidate);

}  // namespace pipewright::tools
