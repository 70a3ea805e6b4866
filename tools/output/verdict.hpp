// Will it hang, and why, on a terminal: the same words for check, simulate and run.
#pragma once

#include <string>
#include <vector>

#include "core/program/verdict.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/terminal.hpp"
#include "tools/input/subject.hpp"

namespace pipewright::tools {

/// "DEADLOCK" and the reasons, a line each.
std::string verdict_text(const Program& program, const WaitReport& report,
                         const std::vector<std::string>& problems, const Terminal& terminal);

/// Reports an order that gets stuck, or is not whole, as check does; the exit status for it.
int show_verdict(const Subject& subject, const WaitReport& report, Session& session);

}  // namespace pipewright::tools
