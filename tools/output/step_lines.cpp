#include "tools/output/step_lines.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

#include "core/base/units.hpp"
#include "tools/cli/terminal.hpp"

namespace pipewright::tools {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::size_t kLinesOfSteps = 8;
constexpr double kShareOfRun = 0.01;
constexpr Seconds kLeastGap(0.2), kMostGap(10);
constexpr std::string_view kGapOfProgress = "   ";

/// How long steps take, by those behind the first, which is slower than they are.
class Pace {
 public:
  /// What is left of a run after its step `step`, counted from 0, with so many to come.
  std::int64_t left_ns(int step, int to_come) {
    const auto now = SteadyClock::now();
    const auto since = step == 0 ? now - begin_ : now - first_end_;
    if (step == 0) first_end_ = now;
    const auto each = Seconds(since) / std::max(step, 1);
    return std::llround(1e9 * each.count() * to_come);
  }

 private:
  SteadyClock::time_point begin_ = SteadyClock::now(), first_end_ = begin_;
};

}  // namespace

std::string loss_text(double loss) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", std::isnan(loss) ? std::fabs(loss) : loss);
  return text;
}

bool LineClock::is_due() {
  const auto now = SteadyClock::now();
  const Seconds share = kShareOfRun * Seconds(now - begin_);
  if (!is_first_ && now - last_ < std::clamp(share, kLeastGap, kMostGap)) return false;
  is_first_ = false;
  last_ = now;
  return true;
}

bool writes_steps_at_once(const Session& session) {
  return !session.json() && !session.terminal().cuts_rows;
}

std::function<void(int, const exec::StepResult&)> step_lines(Session& session, ShownSteps what) {
  return [&session, what = std::move(what), clock = std::make_shared<LineClock>(),
          pace = std::make_shared<Pace>()](int step, const exec::StepResult& result) {
    if (!what.speaks) return;
    const int number = what.first + step + 1;
    if (writes_steps_at_once(session) && (clock->is_due() || number == what.all)) {
      session.print((step == 0 ? what.header : "") + step_line(number, result));
      session.flush();
    }
    if (!session.terminal().progress) return;
    const std::int64_t left = pace->left_ns(step, what.all - number);
    session.progress(step_progress(number, what.all, result, left, width_of_stderr() - 1));
  };
}

std::string step_progress(std::int64_t number, std::int64_t all, const exec::StepResult& step,
                          std::int64_t left_ns, int columns) {
  std::string line = "step " + std::to_string(number) + " of " + std::to_string(all);
  const auto room = static_cast<std::size_t>(std::max(columns, 0));
  const auto add = [&](const std::string& words) {
    if (line.size() + kGapOfProgress.size() + words.size() <= room)
      line.append(kGapOfProgress).append(words);
  };
  if (step.loss) add("loss " + loss_text(*step.loss));
  add(format_duration(Nanoseconds(step.step_ns)));
  if (number < all) add(format_duration(Nanoseconds(left_ns)) + " left");
  if (line.size() > room) line.resize(room);
  return line;
}

std::string step_line(std::int64_t number, const exec::StepResult& step) {
  std::string words = "step " + std::to_string(number);
  words.append(words.size() < 12 ? 12 - words.size() : 1, ' ');
  words += format_duration(Nanoseconds(step.step_ns));
  if (step.loss) {
    words.append(words.size() < 24 ? 24 - words.size() : 1, ' ');
    words += "loss " + loss_text(*step.loss);
  }
  return words + "\n";
}

std::string steps_text(const exec::RunResult& result) {
  std::string text;
  const std::size_t count = result.steps.size();
  std::size_t printed = count;  // none yet
  for (std::size_t line = 0; line < kLinesOfSteps && count > 0; ++line) {
    const std::size_t at = line * (count - 1) / (kLinesOfSteps - 1);
    if (at == printed) continue;
    printed = at;
    text += step_line(result.first_step + static_cast<int>(at) + 1, result.steps[at]);
  }
  return text;
}

JsonList steps_list(const exec::RunResult& result) {
  return {"steps", result.steps.size(), [&result](std::size_t index) {
            const exec::StepResult step = result.steps[index];
            return Json{{"loss", step.loss ? Json(*step.loss) : Json(nullptr)},
                        {"step_ns", step.step_ns}};
          }};
}

std::vector<traces::PageChart> loss_charts(std::vector<double> losses, std::int64_t first_step) {
  const auto is_finite = [](double loss) { return std::isfinite(loss); };
  if (std::none_of(losses.begin(), losses.end(), is_finite)) return {};
  std::string title = "Loss, " + loss_text(losses.front());
  if (losses.size() > 1) title += " to " + loss_text(losses.back());
  return {{.title = std::move(title),
           .unit_of_x = "step",
           .first = first_step + 1,
           .values = std::move(losses)}};
}

std::vector<traces::PageChart> loss_charts(const exec::RunResult& result) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> losses;
  losses.reserve(result.steps.size());
  for (const exec::StepResult& step : result.steps) losses.push_back(step.loss.value_or(kNone));
  return loss_charts(std::move(losses), result.first_step);
}

}  // namespace pipewright::tools
