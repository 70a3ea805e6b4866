// The log of a run (run --log), read while it grows: a JSON object a line. One that says what runs,
// one for each step, one that says how it ended; another run with the same file goes on below.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/descriptor.hpp"
#include "exec/runtime/step_log.hpp"

namespace pipewright::tools {

inline constexpr const char* kRunLogSchema = "pipewright.log/1";

/// What a run says of itself before its first step.
struct RunLogHead {
  std::string title, policy, host;
  std::int64_t first = 0;  // steps of the training before this run
  std::int64_t all = 1;    // the number of its last step
};

struct LoggedStep {
  exec::StepResult result;    // a loss that is null in the file is no number
  std::int64_t ended_ns = 0;  // since the run began
};

/// The last run of the file.
struct RunLog {
  RunLogHead head;
  std::vector<LoggedStep> steps;  // that ended, from step head.first + 1 on
  std::string outcome;            // "finished", "diverged", "interrupted", …; empty: none yet
  int runs = 0;                   // in the file
};

/// True for a plain file that begins as such a log does.
bool is_run_log(const std::string& path);

class RunLogReader {
 public:
  /// Throws InputError if there is no such file, or it is no such log.
  explicit RunLogReader(const std::string& path);

  /// Takes the lines that have come since; false if none has. The last line counts once it has its
  /// end. Throws InputError for a line that is wrong, or a file that has become shorter.
  bool read_on();
  const RunLog& log() const { return log_; }
  /// False where it is known that no process goes on writing; on another host that cannot be known.
  bool may_grow() const;

 private:
  void take(std::string_view line);

  std::string path_;
  Descriptor file_;
  std::int64_t taken_ = 0, line_ = 0;  // bytes, lines
  std::string rest_;                   // a line without its end
  std::string broken_;                 // why the last line is none
  RunLog log_;
};

/// As in a head.
std::string name_of_this_host();

}  // namespace pipewright::tools
