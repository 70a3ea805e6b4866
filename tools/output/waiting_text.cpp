#include "tools/output/waiting_text.hpp"

#include <algorithm>

#include "core/base/units.hpp"
#include "tools/cli/table.hpp"
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

std::string clock_sentence(const ClockShift& clock) {
  const std::string amount = time(std::abs(clock.shift_ns));
  std::string text = "clock of rank " + std::to_string(clock.rank) + " set " + amount +
                     (clock.shift_ns > 0 ? " forward" : " back");
  if (!clock.bounded) return text + ": the least that its messages need";
  return text + ": its messages allow " + time((clock.most_ns - clock.least_ns) / 2) +
         " more or less";
}

std::string missing_ranks(const traces::TraceTimeline& trace) {
  if (trace.world_size <= static_cast<int>(trace.ranks.size())) return "";
  return "traces of " + std::to_string(trace.ranks.size()) + " of " +
         std::to_string(trace.world_size) +
         " ranks: what a wait is for is known only where the traces of both its ranks are given";
}

}  // namespace

std::string waiting_text(const traces::JoinedTrace& joined, const Terminal& terminal) {
  std::vector<std::string> sentences;
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
    if (used) sentences.push_back(sentence(rule, slices, waited));
  }
  for (const ClockShift& clock : joined.clocks) {
    if (clock.shift_ns != 0) sentences.push_back(clock_sentence(clock));
  }
  sentences.push_back(missing_ranks(joined.trace));
  std::string text;
  for (const std::string& line : sentences) {
    if (!line.empty()) text += wrapped(line, terminal.width, 0);
  }
  return text;
}

void add_waiting_fields(const traces::JoinedTrace& joined, Json& fields) {
  for (std::size_t r = 0; r < joined.trace.ranks.size(); ++r) {
    const TraceRank& rank = joined.trace.ranks[r];
    if (rank.wait_rule == WaitRule::Unneeded) continue;
    fields["ranks"][r]["waited_ns"] = waited_ns(rank);
    fields["ranks"][r]["waiting_rule"] = traces::to_string(rank.wait_rule);
  }
  if (joined.clocks.empty()) return;
  Json clocks = Json::array();
  for (const ClockShift& clock : joined.clocks) {
    clocks.push_back({{"rank", clock.rank},
                      {"shift_ns", clock.shift_ns},
                      {"least_ns", clock.bounded ? Json(clock.least_ns) : Json()},
                      {"most_ns", clock.bounded ? Json(clock.most_ns) : Json()}});
  }
  fields["clocks"] = clocks;
}

}  // namespace pipewright::tools
