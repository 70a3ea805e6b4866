#include "tools/output/timeline_text.hpp"

#include <algorithm>

#include "traces/pictures/terminal.hpp"

namespace pipewright::tools {
namespace {

constexpr std::size_t kMostRanks = 64;  // rows that a screen and a reader can take

traces::TerminalOptions options_of(int width, const Terminal& terminal) {
  return {.width = width, .color = terminal.color, .ascii = !terminal.unicode};
}

std::string rest_text(std::size_t ranks) {
  if (ranks <= kMostRanks) return "";
  return "the first " + std::to_string(kMostRanks) + " of " + std::to_string(ranks) +
         " ranks; --trace has all\n";
}

}  // namespace

std::string timeline_text(const traces::TraceTimeline& trace, int width, const Terminal& terminal) {
  const auto drawn = [&](const traces::TraceTimeline& some) {
    return own_codes(terminal, traces::terminal_timeline(some, options_of(width, terminal)));
  };
  if (trace.ranks.size() <= kMostRanks) return drawn(trace);
  traces::TraceTimeline first = trace;
  first.ranks.resize(kMostRanks);
  return drawn(first) + rest_text(trace.ranks.size());
}

std::string timeline_text(const Program& program, const Timeline& timeline, int width,
                          const Terminal& terminal) {
  const bool stuck =
      std::find(timeline.end.begin(), timeline.end.end(), kNotEnded) != timeline.end.end();
  if (stuck) return timeline_text(traces::trace_timeline(program, timeline), width, terminal);
  const std::string drawn =
      own_codes(terminal, traces::terminal_timeline(program, timeline, static_cast<int>(kMostRanks),
                                                    options_of(width, terminal)));
  return drawn + rest_text(static_cast<std::size_t>(program.ranks()));
}

}  // namespace pipewright::tools
