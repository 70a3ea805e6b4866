// The steps of a training as they end, for run and demo.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "exec/runtime/runtime.hpp"
#include "tools/cli/session.hpp"
#include "traces/page/chart.hpp"

namespace pipewright::tools {

/// True where stdout is a pipe or a file and the result is text: then each line is written when its
/// step ends, and not again at the end.
bool writes_steps_at_once(const Session& session);

/// Which of the steps get a line of their own: the first, and then one as soon as a hundredth of
/// the time so far, at least 0.2 s and at most 10 s, has gone by since the line before.
class LineClock {
 public:
  bool is_due();

 private:
  bool is_first_ = true;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now(), last_ = begin_;
};

struct ShownSteps {
  int first = 0;       // steps of the training before this run
  int all = 1;         // the number of its last step
  std::string header;  // goes in front of the first line
  bool speaks = true;  // false in all processes of a job but one
};

/// For RunOptions::on_step. On a terminal a line on stderr that the next one replaces; where
/// writes_steps_at_once() a line of stdout for each step, or for fewer of them where steps are
/// short: those that are due (LineClock), and the last.
std::function<void(int, const exec::StepResult&)> step_lines(Session& session, ShownSteps what);

/// "2.3026", or "nan".
std::string loss_text(double loss);
/// "step 12 of 60   loss 2.3026   25.0 ms   1.2 s left": as much of it as `columns` hold.
std::string step_progress(std::int64_t number, std::int64_t all, const exec::StepResult& step,
                          std::int64_t left_ns, int columns);
/// "step 12     25.0 ms     loss 2.31", with a line's end. Steps count from 1.
std::string step_line(std::int64_t number, const exec::StepResult& step);
/// Losses and times of some steps, the first and the last among them.
std::string steps_text(const exec::RunResult& result);
/// "steps" of the result in JSON. A loss that is no finite number is null.
JsonList steps_list(const exec::RunResult& result);

/// The losses as a page's chart, with the first and the last in its title; nothing without one.
std::vector<traces::PageChart> loss_charts(const exec::RunResult& result);
/// The same of losses that were read; one that is no finite number leaves a gap.
std::vector<traces::PageChart> loss_charts(std::vector<double> losses, std::int64_t first_step);

}  // namespace pipewright::tools
