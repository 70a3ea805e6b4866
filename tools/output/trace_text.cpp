#include "tools/output/trace_text.hpp"

#include <algorithm>
#include <cmath>

#include "core/base/units.hpp"
#include "tools/cli/table.hpp"
#include "tools/input/trace_program.hpp"
#include "traces/analysis/slice_waits.hpp"

namespace pipewright::tools {
namespace {

using traces::ClockShift;
using traces::TraceRank;
using traces::WaitRule;

std::int64_t waited_ns(const TraceRank& rank) {
  std::int64_t waited = 0;
  for (const traces::TimeRange& wait : rank.waits) waited += wait.end_ns - wait.start_ns;
  return waited;
}

std::string time(std::int64_t ns) { return format_duration(Nanoseconds(ns)); }

/// "+1.20 ms", "-3 us", "0 ns".
std::string signed_time(std::int64_t ns) { return (ns > 0 ? "+" : "") + time(ns); }

std::string sentence(WaitRule rule, std::size_t slices, std::int64_t waited) {
  const std::string taken =
      time(waited) + " of waiting inside " + std::to_string(slices) + " slices counts as idle: ";
  switch (rule) {
    case WaitRule::Receives:
      return taken + "up to the end of the receives that they need";
    case WaitRule::Operators:
      return taken + "up to the first operator inside";
    case WaitRule::Producers:
      return taken + "up to the end of what feeds them on another rank";
    case WaitRule::Unknown:
      return "waiting inside slices counts as work: the trace shows neither receives nor "
             "operators; "
             "record the CPU's operators, or give the traces of all ranks";
    case WaitRule::Unneeded:
      break;
  }
  return "";
}

std::string open_text(const ClockShift& clock) {
  const std::int64_t least = clock.least_ns - clock.shift_ns;
  const std::int64_t most = clock.most_ns - clock.shift_ns;
  return "its messages leave open " + time(least) + " to +" + time(most);
}

std::string clock_sentence(const ClockShift& clock) {
  std::string text = "clock of rank " + std::to_string(clock.rank) + " set " +
                     time(std::abs(clock.shift_ns)) + (clock.shift_ns > 0 ? " forward" : " back");
  if (clock.drift != 0) {
    text += " and " + std::to_string(std::llround(std::abs(clock.drift) * 1e6)) + " ppm " +
            (clock.drift > 0 ? "faster" : "slower");
  }
  return text + ": " + open_text(clock);
}

/// How the clocks stand where none had to be moved.
std::string agreed_sentence(const traces::ClockFit& fit) {
  if (fit.messages == 0)
    return "clocks are taken as they are: there is no message to check them by";
  std::int64_t least = 0, most = 0;
  std::string unbounded;
  for (const ClockShift& clock : fit.shifts) {
    least = std::min(least, clock.least_ns);
    most = std::max(most, clock.most_ns);
    if (!clock.bounded) unbounded += (unbounded.empty() ? " " : ", ") + std::to_string(clock.rank);
  }
  std::string text = "clocks are taken as they are: all " + std::to_string(fit.messages) +
                     " messages end after they began, and leave open " + time(least) + " to +" +
                     time(most);
  if (!unbounded.empty()) text += "; not of ranks" + unbounded + ", which they do not bound";
  return text;
}

std::vector<std::string> clock_sentences(const traces::ClockFit& fit) {
  if (fit.shifts.empty()) return {};
  if (fit.agreed) return {agreed_sentence(fit)};
  std::vector<std::string> sentences;
  if (fit.acausal_before > 0) {
    sentences.push_back("the ranks' clocks were wrong: " + std::to_string(fit.acausal_before) +
                        " of " + std::to_string(fit.messages) +
                        " messages ended before they began, by up to " + time(fit.worst_before_ns));
  }
  for (const ClockShift& clock : fit.shifts) {
    if (clock.shift_ns != 0 || clock.drift != 0) sentences.push_back(clock_sentence(clock));
  }
  if (fit.acausal_after > 0) {
    sentences.push_back(std::to_string(fit.acausal_after) +
                        " messages still end before they began, by up to " +
                        time(fit.worst_after_ns) + ": no steady clocks explain them");
  }
  return sentences;
}

std::string step_sentence(const ChosenStep& chosen) {
  if (chosen.steps.size() < 2) return "";
  const auto [fast, slow] = std::minmax_element(
      chosen.steps.begin(), chosen.steps.end(),
      [](const auto& a, const auto& b) { return a.makespan_ns < b.makespan_ns; });
  return "step " + std::to_string(chosen.joined.trace.step) + " of the " +
         std::to_string(chosen.steps.size()) + " steps " +
         std::to_string(chosen.steps.front().number) + " to " +
         std::to_string(chosen.steps.back().number) + ", which take " + time(fast->makespan_ns) +
         " to " + time(slow->makespan_ns) +
         (chosen.asked_for ? "" : ": the one with the median duration; --step N chooses another");
}

std::string stray_sentence(const traces::TraceTimeline& trace) {
  if (trace.stray_transfers == 0) return "";
  return std::to_string(trace.stray_transfers) +
         " kernels of NCCL were launched outside the actions of the pipeline and do not count";
}

std::string missing_ranks(const traces::TraceTimeline& trace) {
  if (trace.world_size <= static_cast<int>(trace.ranks.size())) return "";
  const std::string some = "traces of " + std::to_string(trace.ranks.size()) + " of " +
                           std::to_string(trace.world_size) + " ranks";
  if (is_whole_pipeline(trace)) return some + ": one pipeline, from its first stage to its last";
  return some + ": what a wait is for is known only where the traces of both its ranks are given";
}

Json clock_fields(const ClockShift& clock) {
  return {{"rank", clock.rank},
          {"shift_ns", clock.shift_ns},
          {"least_ns", clock.bounded ? Json(clock.least_ns) : Json()},
          {"most_ns", clock.bounded ? Json(clock.most_ns) : Json()},
          {"drift_ppm", clock.drift * 1e6}};
}

void add_clock_fields(const traces::ClockFit& fit, Json& fields) {
  if (fit.shifts.empty()) return;
  fields["clocks"] = Json::array();
  for (const ClockShift& clock : fit.shifts) fields["clocks"].push_back(clock_fields(clock));
  fields["messages"] = {{"matched", fit.messages},
                        {"acausal_before", fit.acausal_before},
                        {"worst_before_ns", fit.worst_before_ns},
                        {"acausal_after", fit.acausal_after},
                        {"worst_after_ns", fit.worst_after_ns}};
}

}  // namespace

std::vector<std::string> trace_sentences(const ChosenStep& chosen) {
  const traces::JoinedTrace& joined = chosen.joined;
  std::vector<std::string> sentences = {step_sentence(chosen)};
  const auto computed = joined.trace.metadata.find("times");
  const bool was_measured = computed == joined.trace.metadata.end();
  if (!was_measured) sentences.push_back(computed->second);
  for (const WaitRule rule :
       {WaitRule::Receives, WaitRule::Operators, WaitRule::Producers, WaitRule::Unknown}) {
    std::size_t slices = 0;
    std::int64_t waited = 0;
    bool used = false;
    for (const TraceRank& rank : joined.trace.ranks) {
      if (rank.wait_rule != rule) continue;
      used = true;
      slices += rank.waits.size();
      waited += waited_ns(rank);
    }
    if (used && was_measured) sentences.push_back(sentence(rule, slices, waited));
  }
  if (was_measured) {
    for (std::string& sentence : clock_sentences(joined.clocks))
      sentences.push_back(std::move(sentence));
  }
  sentences.push_back(stray_sentence(joined.trace));
  sentences.push_back(missing_ranks(joined.trace));
  std::erase(sentences, "");
  return sentences;
}

std::string trace_text(const ChosenStep& chosen, const Terminal& terminal) {
  std::string text;
  for (const std::string& line : trace_sentences(chosen)) text += wrapped(line, terminal.width, 0);
  return text;
}

std::vector<traces::PageTable> trace_tables(const ChosenStep& chosen) {
  const traces::ClockFit& fit = chosen.joined.clocks;
  traces::PageTable clocks{"Clocks", {"rank", "set by", "least", "most", "drift"}, {}};
  for (const ClockShift& clock : fit.shifts) {
    const auto bound = [&](std::int64_t ns) {
      return clock.bounded ? signed_time(ns) : std::string("not bounded");
    };
    clocks.rows.push_back({std::to_string(clock.rank), signed_time(clock.shift_ns),
                           bound(clock.least_ns), bound(clock.most_ns),
                           std::to_string(std::llround(clock.drift * 1e6)) + " ppm"});
  }
  traces::PageTable messages{
      "Messages between clocks",
      {"", "end before they began", "by up to"},
      {{"by the clocks as they were", std::to_string(fit.acausal_before),
        time(fit.worst_before_ns)},
       {"by the clocks set right", std::to_string(fit.acausal_after), time(fit.worst_after_ns)},
       {"all that were matched", std::to_string(fit.messages), ""}}};
  traces::PageTable waits{"Waiting inside slices", {"rank", "slices", "time", "told by"}, {}};
  for (const TraceRank& rank : chosen.joined.trace.ranks) {
    if (rank.wait_rule == WaitRule::Unneeded) continue;
    waits.rows.push_back({std::to_string(rank.rank), std::to_string(rank.waits.size()),
                          time(waited_ns(rank)), std::string(traces::to_string(rank.wait_rule))});
  }
  traces::PageTable steps{"Steps of the trace", {"step", "time"}, {}};
  for (const TracedStep& step : chosen.steps) {
    const bool shown = step.number == chosen.joined.trace.step;
    steps.rows.push_back(
        {std::to_string(step.number) + (shown ? " (shown)" : ""), time(step.makespan_ns)});
  }
  std::vector<traces::PageTable> tables;
  if (!waits.rows.empty()) tables.push_back(std::move(waits));
  if (!clocks.rows.empty()) tables.insert(tables.end(), {std::move(clocks), std::move(messages)});
  if (steps.rows.size() > 1) tables.push_back(std::move(steps));
  return tables;
}

void add_trace_fields(const ChosenStep& chosen, Json& fields) {
  const traces::TraceTimeline& trace = chosen.joined.trace;
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
    const TraceRank& rank = trace.ranks[r];
    if (rank.wait_rule == WaitRule::Unneeded) continue;
    fields["ranks"][r]["waited_ns"] = waited_ns(rank);
    fields["ranks"][r]["waiting_rule"] = traces::to_string(rank.wait_rule);
  }
  add_clock_fields(chosen.joined.clocks, fields);
  if (chosen.steps.size() < 2) return;
  fields["step"] = trace.step;
  fields["steps"] = Json::array();
  for (const TracedStep& step : chosen.steps)
    fields["steps"].push_back({{"step", step.number}, {"makespan_ns", step.makespan_ns}});
}

}  // namespace pipewright::tools
