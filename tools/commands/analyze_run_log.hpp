// The part of analyze that reads the log of a run, and follows one that goes on.
#pragma once

#include "tools/cli/arguments.hpp"
#include "tools/cli/command.hpp"
#include "tools/cli/session.hpp"

namespace pipewright::tools {

/// --watch
Flag watch_flag();

/// Of the last run in the file. With --watch it shows the steps as they end, on a terminal in one
/// line, and returns when the run has: kAnswerIsNo where that has not finished. Throws InputError
/// for a file that is no such log, and for flags that do not go with one; Interrupted.
int analyze_run_log(const Arguments& arguments, Session& session);

}  // namespace pipewright::tools
