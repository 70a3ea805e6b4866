// "strategy" of a job file: Paddle's field names, flat or inside "pipeline".
#pragma once

#include "core/plan/job.hpp"

namespace pipewright {

Strategy read_strategy(const JsonCursor& value);
Json to_json(const Strategy& strategy);

/// Throws InputError, at its place, for a field that only estimated jobs have
/// (estimated_architecture()) if `job` is none.
void require_strategy_fits(const JsonCursor& strategy, const Job& job);

}  // namespace pipewright
