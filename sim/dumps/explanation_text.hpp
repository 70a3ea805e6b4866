// An explanation in words and as JSON, the same for the command and for Python.
#pragma once

#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "sim/dumps/explanation.hpp"

namespace pipewright::sim {

/// "4 ranks, 2 groups, 120 calls (nccl)".
std::string title_of(const Explanation& explained);
/// What hangs and for want of what, a line each, not broken; of Ok what has not ended.
std::vector<std::string> reasons_of(const Explanation& explained);
/// "verdict", "guarantee", "standstills", "waits" (the cycle), "absent", "shifts", "at_end" (by
/// rank) and "reasons", as reasons_of() says them.
Json to_json(const Explanation& explained);

}  // namespace pipewright::sim
