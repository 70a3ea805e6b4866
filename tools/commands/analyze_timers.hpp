// analyze of a training log: what Megatron-LM's timers say.
#pragma once

#include <optional>
#include <string>

#include "tools/cli/arguments.hpp"
#include "tools/cli/session.hpp"

namespace pipewright::tools {

/// The text of a file that holds such timers; nullopt for any other, and for what is a trace.
std::optional<std::string> timer_log(const std::string& path);

/// `log`: the text of the file that the command's words name. Prints each stage's times and, where
/// --micro-batches is given, the schedule simulated with their costs; the exit status. Throws
/// InputError for a log without the timers of each rank, and for flags that go with other inputs.
int analyze_timers(const std::string& log, const Arguments& arguments, Session& session);

}  // namespace pipewright::tools
