// The log of a run (run --log), as its lines come: a JSON object a line. One that says what runs,
// one for each step, one that says how it ended; another run with the same file goes on below.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

/// True if a file that begins so is such a log, of whatever version.
bool begins_run_log(std::string_view start);

class RunLogLines {
 public:
  explicit RunLogLines(std::string file) : file_(std::move(file)) {}

  /// What the file goes on with. The last line counts once it has its end. Throws InputError for a
  /// line that is wrong.
  void add(std::string_view bytes);
  /// Throws InputError for a last line that is wrong, unless a new run goes on below it.
  void require_sound() const;
  const RunLog& log() const { return log_; }

 private:
  void take(std::string_view line);

  std::string file_;
  std::int64_t line_ = 0;
  std::string rest_;    // a line without its end
  std::string broken_;  // why the last line is none
  RunLog log_;
};

}  // namespace pipewright::tools
