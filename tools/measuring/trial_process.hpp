// Runs a launch command to its end, or ends it.
#pragma once

#include <string>

#include "core/base/units.hpp"
#include "tools/measuring/output_reader.hpp"

namespace pipewright::tools {

/// How a command ended, and what it said.
struct TrialRun {
  int status = 0;          // exit status; 128 + number if a signal ended it
  bool timed_out = false;  // it was ended after `limit`
  OutputReading said;      // standard output and standard error together
  std::string tail;        // the last lines of both
  Nanoseconds took;
};

/// Runs it with /bin/sh in a process group of its own, standard input empty. After `limit` (0:
/// never), at a signal to this process, and once the shell has ended, the whole group is ended:
/// first SIGTERM, after five seconds SIGKILL. Needs an InterruptScope; throws Interrupted after a
/// signal, MachineError where no process can be started.
TrialRun run_trial(const std::string& command, const std::vector<OutputPattern>& patterns,
                   Nanoseconds limit);

}  // namespace pipewright::tools
