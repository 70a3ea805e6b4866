// analyze of a training log: what Megatron-LM's timers say.
#pragma once

#include <string>

#include "tools/cli/arguments.hpp"
#include "tools/cli/session.hpp"

namespace pipewright::tools {

/// Whether the file is text that holds such timers.
bool is_timer_log(const std::string& path);

/// Prints each stage's times and, where --micro-batches is given, the schedule simulated with their
/// costs; the exit status. Throws InputError for a log without the timers of each rank, and for
/// flags that go with other inputs.
int analyze_timers(const Arguments& arguments, Session& session);

}  // namespace pipewright::tools
