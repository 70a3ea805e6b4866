// The log of a run (tools/input/run_log.hpp) as text, as the line that follows a running job, and
// as JSON.
#pragma once

#include <string>

#include "core/base/json.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/terminal.hpp"
#include "tools/input/run_log.hpp"

namespace pipewright::tools {

/// `gone`: the run has ended without a word, because it was killed.
std::string run_log_title(const RunLog& log, const Terminal& terminal);
/// How far it came, what its steps took, and its losses as a curve.
std::string run_log_text(const RunLog& log, const std::string& file, bool gone,
                         const Terminal& terminal);

/// "step 12 of 60   25.0 ms   loss 2.3026   1.2 s left   ▇▅▃▂▁": as much of it as `columns` hold.
std::string watch_line(const RunLog& log, int columns, bool unicode);

Json run_log_fields(const RunLog& log, bool gone);
/// "steps", as run has them. `log` has to outlive the list.
JsonList logged_steps_list(const RunLog& log);

}  // namespace pipewright::tools
