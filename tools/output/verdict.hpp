// Will it hang, and why, on a terminal: the same words for check, simulate and run.
#pragma once

#include <string>
#include <vector>

#include "core/program/verdict.hpp"
#include "tools/cli/terminal.hpp"

namespace pipewright::tools {

/// "DEADLOCK" and the reasons, a line each.
std::string verdict_text(const Program& program, const WaitReport& report,
                         const std::vector<std::string>& problems, const Terminal& terminal);

}  // namespace pipewright::tools
