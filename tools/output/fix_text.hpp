// What `check --fix` prints and writes: the fix, what it changes, what it costs.
#pragma once

#include <string>

#include "core/base/json.hpp"
#include "planner/fix/fix.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/terminal.hpp"
#include "tools/input/subject.hpp"

namespace pipewright::tools {

/// --fix and --out.
std::vector<Flag> fix_flags();

planner::FixReport fix_of(const Subject& subject);
/// The Program of the fixed order, lowered as the subject's is.
Program fixed_program(const LowerOptions& lowering, const planner::Fix& fix);

/// "name", "sentence", "changes", "policy", "difference", "step_ns_before", "step_ns_after" and
/// "order" of the first fix, null where there is none.
Json fix_fields(const planner::FixReport& report);
/// The first fix with its proof and its cost, the names of the others; or why nothing helps.
std::string fix_text(const planner::FixReport& report, const Terminal& terminal);

/// Writes a plan's fixed plan, with its prediction made anew; of anything else the fixed order as
/// CSV, and notes the policy under which it ends.
void save_fixed(const Subject& subject, const planner::Fix& fix, const std::string& path,
                Session& session);

}  // namespace pipewright::tools
