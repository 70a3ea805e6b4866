// Will it hang, and why: the same words and the same JSON for check, simulate and run.
#pragma once

#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "core/program/program.hpp"
#include "core/program/wait_for.hpp"
#include "tools/cli/terminal.hpp"

namespace pipewright::tools {

/// "verdict", "cycle" (what is shown), "lane_cycle" (docs/semantics.md §7.1), "stuck", "fix",
/// "problems".
Json verdict_fields(const Program& program, const WaitReport& report,
                    const std::vector<std::string>& problems);
/// "DEADLOCK" and the reasons, a line each.
std::string verdict_text(const Program& program, const WaitReport& report,
                         const std::vector<std::string>& problems, const Terminal& terminal);

}  // namespace pipewright::tools
