// Will it hang, and why, as every command says it: the JSON, and the lines that a person reads.
#pragma once

#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "core/program/program.hpp"
#include "core/program/wait_for.hpp"

namespace pipewright {

/// "verdict", "cycle" (what is shown), "lane_cycle" (docs/semantics.md §7.1), "stuck", "fix",
/// "problems" (`problems` of the order, then what the report says besides the cycle).
Json verdict_fields(const Program& program, const WaitReport& report,
                    const std::vector<std::string>& problems);

/// "ok", "DEADLOCK", "MISMATCH", "INVALID".
std::string verdict_title(const WaitReport& report);
/// What stands below the title, at most twelve lines and "...".
std::vector<std::string> verdict_reasons(const Program& program, const WaitReport& report,
                                         const std::vector<std::string>& problems);
/// "heads: rank 2 6SEND_F2, rank 3 7SEND_B0"; "" where nothing is stuck.
std::string stuck_heads_text(const Program& program, const WaitReport& report);

}  // namespace pipewright
