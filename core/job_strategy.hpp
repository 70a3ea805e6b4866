// "strategy" of a job file: Paddle's field names, flat or inside "pipeline".
#pragma once

#include "core/job.hpp"

namespace pipewright {

Strategy read_strategy(const JsonCursor& value);
Json to_json(const Strategy& strategy);

}  // namespace pipewright
