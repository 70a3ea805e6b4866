// "strategy" of a job file: Paddle's field names, flat or inside "pipeline".
#pragma once

#include "core/plan/job.hpp"

namespace pipewright {

Strategy read_strategy(const JsonCursor& value);
Json to_json(const Strategy& strategy);

/// Refuses, at its place, a field that only an estimated job has in one that is not.
void require_strategy_fits(const JsonCursor& strategy, const Job& job);

}  // namespace pipewright
