#include "tools/commands/analyze_run_log.hpp"

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/commands/commands.hpp"
#include "tools/input/run_log_file.hpp"
#include "tools/input/subject.hpp"
#include "tools/output/run_log_text.hpp"
#include "tools/output/step_lines.hpp"

namespace pipewright::tools {
namespace {

constexpr std::chrono::milliseconds kPause(100);

void refuse_flags_of_timelines(const Arguments& arguments) {
  std::vector<Flag> others = analyze_command().flags;
  std::erase_if(others, [](const Flag& flag) { return flag.name == watch_flag().name; });
  refuse_flags(arguments, others, "does not go with the log of a run, which has no timeline");
  if (arguments.positionals().size() == 1) return;
  throw InputError(arguments.positionals()[1], "",
                   "is one file too many: a job has one log, which process 0 writes");
}

/// Shows a run while it goes on.
class Watch {
 public:
  explicit Watch(Session& session) : session_(session) {}

  /// Called again and again; the steps that were there at first are one.
  void show(const RunLog& log) {
    if (session_.json() || log.steps.size() == shown_) return;
    const bool catches_up = shown_ == 0;
    if (session_.terminal().progress && !writes_steps_at_once(session_)) {
      session_.progress(watch_line(log, width_of_stderr() - 1, session_.terminal().unicode));
    } else {
      print_lines(log, catches_up ? log.steps.size() - 1 : shown_);
    }
    shown_ = log.steps.size();
  }

 private:
  void print_lines(const RunLog& log, std::size_t from) {
    for (std::size_t i = from; i < log.steps.size(); ++i) {
      const auto number = log.head.first + static_cast<std::int64_t>(i) + 1;
      if (clock_.is_due() || number == log.head.all)
        session_.print(step_line(number, log.steps[i].result));
    }
    session_.flush();
  }

  Session& session_;
  LineClock clock_;
  std::size_t shown_ = 0;
};

/// Until the run has ended, or nobody reads what is shown. True if it has ended without a word.
bool follow(RunLogFile& reader, Session& session) {
  const InterruptScope scope;
  Watch watch(session);
  if (!session.json()) session.print(run_log_title(reader.log(), session.terminal()));
  session.flush();
  for (;;) {
    watch.show(reader.log());
    if (!reader.log().outcome.empty() || session.reader_gone()) return false;
    InterruptScope::check();
    const bool may_grow = reader.may_grow();  // asked before: what was written by then is read
    if (reader.read_on()) continue;
    if (!may_grow) return true;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

Flag watch_flag() {
  return {.group = "Output",
          .name = "--watch",
          .help =
              "FILE is the log of a run (run --log): show its steps as they end, until it has "
              "ended; exit status 1 if it did not finish"};
}

int analyze_run_log(const Arguments& arguments, Session& session) {
  refuse_flags_of_timelines(arguments);
  const std::string& file = arguments.positionals().front();
  RunLogFile reader(file);
  const bool watches = arguments.has(watch_flag().name);
  const bool gone =
      watches ? follow(reader, session) : reader.log().outcome.empty() && !reader.may_grow();
  session.clear_progress();
  const RunLog& log = reader.log();
  if (session.json()) {
    session.print_result(run_log_fields(log, gone), logged_steps_list(log));
  } else {
    if (!watches) session.print(run_log_title(log, session.terminal()));
    session.print(run_log_text(log, file, gone, session.terminal()));
  }
  return watches && log.outcome != "finished" ? kAnswerIsNo : kDone;
}

}  // namespace pipewright::tools
