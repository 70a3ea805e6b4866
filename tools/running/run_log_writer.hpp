// Writes the log of a run (tools/input/run_log.hpp), a line as each step ends. While it does, it
// holds a lock on the file, which goes with the process: so a reader knows that a run was killed.
#pragma once

#include <chrono>
#include <exception>
#include <string>
#include <string_view>

#include "core/base/descriptor.hpp"
#include "exec/runtime/step_log.hpp"
#include "tools/cli/command.hpp"
#include "tools/cli/session.hpp"

namespace pipewright::tools {

/// --log
Flag run_log_flag();

class RunLogWriter {
 public:
  /// Goes on below what other runs have written. Throws InputError for a file that is something
  /// else, or into which another run writes; MachineError if it cannot be written. `session` has to
  /// outlive it.
  RunLogWriter(const std::string& path, std::string title, std::string policy, Session& session);

  /// Before the first step: how many steps the training has had, and the number of the last one.
  void begin(std::int64_t first, std::int64_t all);
  /// A step that was written already is left out.
  void step(std::int64_t number, const exec::StepResult& result);
  /// Nothing the second time, and before begin().
  void end(std::string_view outcome);
  /// By what has ended the run; of a training that diverged its last step too.
  void end_with(const std::exception_ptr& thrown);

 private:
  void write(const std::string& line);

  std::string path_, title_, policy_;
  Session& session_;
  Descriptor file_;
  std::chrono::steady_clock::time_point begun_;
  std::int64_t last_ = 0;  // step that was written
  bool is_open_ = false;   // between begin() and end(), and nothing has failed
};

}  // namespace pipewright::tools
