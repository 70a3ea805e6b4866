// What a search found as JSON, with the keys of `tune --json` (docs/schemas/result.schema.json).
#pragma once

#include "core/base/json.hpp"
#include "planner/configurations/candidate.hpp"
#include "planner/configurations/costing.hpp"
#include "planner/search/search.hpp"

namespace pipewright::planner {

/// A row of the ranked table.
Json candidate_fields(const Candidate& candidate);
Json costing_fields(const Costing& costing);
/// All but the plan.
Json search_fields(const SearchResult& result);

}  // namespace pipewright::planner
