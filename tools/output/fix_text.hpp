// What `check --fix` prints and writes: the cure, what it changes, what it costs.
#pragma once

#include <string>

#include "core/base/json.hpp"
#include "planner/fix/cure.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/terminal.hpp"
#include "tools/input/subject.hpp"

namespace pipewright::tools {

/// --fix and --out.
std::vector<Flag> cure_flags();

planner::CureReport cure_of(const Subject& subject);
/// The Program that the cure makes of the subject.
Program cured_program(const Subject& subject, const planner::Cure& cure);

/// "name", "sentence", "changes", "policy", "difference", "step_ns_before", "step_ns_after" and
/// "order" of the first cure, null where there is none.
Json fix_fields(const planner::CureReport& report);
/// The first cure with its proof and its cost, the names of the others; or why nothing helps.
std::string cure_text(const planner::CureReport& report, const Terminal& terminal);

/// Writes a plan's cured plan, with its prediction made anew; of anything else the cured order as
/// CSV, and notes the policy under which it ends.
void save_cured(const Subject& subject, const planner::Cure& cure, const std::string& path,
                Session& session);

}  // namespace pipewright::tools
