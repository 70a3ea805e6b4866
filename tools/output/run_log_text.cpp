#include "tools/output/run_log_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/units.hpp"
#include "core/costs/distribution.hpp"
#include "tools/cli/table.hpp"
#include "tools/output/step_lines.hpp"

namespace pipewright::tools {
namespace {

constexpr std::size_t kRecentSteps = 100;  // what is left is told by them
constexpr double kLongestLeft = 1e18;      // ns
constexpr int kMostCurve = 60, kLeastCurve = 4;
constexpr std::string_view kBetween = "   ";

std::string took_text(std::int64_t ns) { return format_duration(Nanoseconds(ns)); }

std::int64_t last_step(const RunLog& log) {
  return log.head.first + static_cast<std::int64_t>(log.steps.size());
}

Distribution step_times(const RunLog& log) {
  std::vector<std::int64_t> times;
  times.reserve(log.steps.size());
  for (const LoggedStep& step : log.steps) times.push_back(step.result.step_ns);
  return distribution_of(std::move(times));
}

std::vector<double> finite_losses(const RunLog& log) {
  std::vector<double> losses;
  for (const LoggedStep& step : log.steps) {
    if (step.result.loss && std::isfinite(*step.result.loss)) losses.push_back(*step.result.loss);
  }
  return losses;
}

/// Means of equal parts of the losses, from the least to the greatest; "" for fewer than two.
std::string curve(const std::vector<double>& losses, int columns) {
  static constexpr std::array<std::string_view, 8> kBars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const auto parts = std::min(losses.size(), static_cast<std::size_t>(std::max(columns, 0)));
  if (parts < 2) return "";
  std::vector<double> means;
  for (std::size_t i = 0; i < parts; ++i) {
    const std::size_t begin = losses.size() * i / parts, end = losses.size() * (i + 1) / parts;
    double sum = 0;
    for (std::size_t k = begin; k < end; ++k) sum += losses[k] / static_cast<double>(end - begin);
    means.push_back(sum);
  }
  const auto [least, most] = std::minmax_element(means.begin(), means.end());
  std::string text;
  for (const double mean : means) {
    const double part = (mean - *least) / (*most - *least);
    const double share = std::isfinite(part) ? part : 0;
    text += kBars[static_cast<std::size_t>(std::lround(share * (kBars.size() - 1)))];
  }
  return text;
}

/// What the steps to come take if they come as fast as the last ones did; nullopt before the first.
std::optional<std::int64_t> left_ns(const RunLog& log) {
  if (log.steps.empty()) return std::nullopt;
  const std::size_t recent = std::min(log.steps.size(), kRecentSteps);
  const std::size_t before = log.steps.size() - recent;
  const std::int64_t since = before == 0 ? 0 : log.steps[before - 1].ended_ns;
  const double each =
      static_cast<double>(log.steps.back().ended_ns - since) / static_cast<double>(recent);
  const auto steps = static_cast<double>(std::max<std::int64_t>(0, log.head.all - last_step(log)));
  return std::llround(std::clamp(each * steps, 0.0, kLongestLeft));
}

std::string how_it_ended(const RunLog& log, bool gone) {
  if (!log.outcome.empty()) return log.outcome;
  return gone ? "ended without a word: it was killed" : "still running";
}

}  // namespace

std::string run_log_title(const RunLog& log, const Terminal& terminal) {
  return painted(terminal, Ink::Bold, wrapped(log.head.title, terminal.width, 0)) +
         wrapped("policy " + log.head.policy, terminal.width, 0);
}

std::string run_log_text(const RunLog& log, const std::string& file, bool gone,
                         const Terminal& terminal) {
  std::string text = file;
  if (log.runs > 1) text += ", the last of " + std::to_string(log.runs) + " runs";
  text += ": ";
  if (log.steps.empty()) {
    return wrapped(text + "no step yet, " + how_it_ended(log, gone), terminal.width, 0);
  }
  text += "steps " + std::to_string(log.head.first + 1) + " to " + std::to_string(last_step(log)) +
          " of " + std::to_string(log.head.all) + ", " + how_it_ended(log, gone);
  text = wrapped(text, terminal.width, 0);
  const Distribution times = step_times(log);
  const auto slowest = std::max_element(
      log.steps.begin(), log.steps.end(),
      [](const auto& a, const auto& b) { return a.result.step_ns < b.result.step_ns; });
  text += wrapped("a step took " + took_text(times.median().value) + " (median), 10 % to 90 % " +
                      took_text(times.quantiles[1].value) + " to " +
                      took_text(times.quantiles[5].value) + ", step " +
                      std::to_string(log.head.first + 1 + (slowest - log.steps.begin())) + " " +
                      took_text(slowest->result.step_ns),
                  terminal.width, 0);
  const std::vector<double> losses = finite_losses(log);
  if (losses.empty()) return text;
  std::string line = "loss " + loss_text(losses.front()) + " to " + loss_text(losses.back());
  const int room = terminal.width - static_cast<int>(line.size() + kBetween.size());
  const std::string bars = terminal.unicode ? curve(losses, std::min(kMostCurve, room)) : "";
  if (!bars.empty()) line.append(kBetween).append(bars);
  return text + line + "\n";
}

std::string watch_line(const RunLog& log, int columns, bool unicode) {
  const exec::StepResult last = log.steps.empty() ? exec::StepResult{} : log.steps.back().result;
  std::string line =
      step_progress(last_step(log), log.head.all, last, left_ns(log).value_or(0), columns);
  const int room = columns - static_cast<int>(line.size() + kBetween.size());
  if (!unicode || room < kLeastCurve) return line;
  const std::string bars = curve(finite_losses(log), std::min(kMostCurve, room));
  return bars.empty() ? line : line.append(kBetween).append(bars);
}

Json run_log_fields(const RunLog& log, bool gone) {
  Json of_log = {{"title", log.head.title},
                 {"runs", log.runs},
                 {"outcome", log.outcome.empty() ? Json(gone ? Json("gone") : Json(nullptr))
                                                 : Json(log.outcome)},
                 {"all_steps", log.head.all}};
  if (!log.steps.empty()) {
    of_log["median_step_ns"] = step_times(log).median().value;
    if (log.outcome.empty() && !gone) of_log["left_ns"] = left_ns(log).value_or(0);
  }
  return {{"log", std::move(of_log)}, {"first_step", log.head.first}, {"steps", Json::array()}};
}

JsonList logged_steps_list(const RunLog& log) {
  return {"steps", log.steps.size(), [&log](std::size_t index) {
            const exec::StepResult& step = log.steps[index].result;
            const bool is_number = step.loss && std::isfinite(*step.loss);
            return Json{{"loss", is_number ? Json(*step.loss) : Json(nullptr)},
                        {"step_ns", step.step_ns}};
          }};
}

}  // namespace pipewright::tools
