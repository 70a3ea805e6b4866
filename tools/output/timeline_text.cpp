#include "tools/output/timeline_text.hpp"

#include "traces/pictures/terminal.hpp"

namespace pipewright::tools {
namespace {

constexpr std::size_t kMostRanks = 64;  // rows that a screen and a reader can take

}  // namespace

std::string timeline_text(const traces::TraceTimeline& trace, int width, const Terminal& terminal) {
  const traces::TerminalOptions options{
      .width = width, .color = terminal.color, .ascii = !terminal.unicode};
  const auto drawn = [&](const traces::TraceTimeline& some) {
    return own_codes(terminal, traces::terminal_timeline(some, options));
  };
  if (trace.ranks.size() <= kMostRanks) return drawn(trace);
  traces::TraceTimeline first = trace;
  first.ranks.resize(kMostRanks);
  return drawn(first) + "the first " + std::to_string(kMostRanks) + " of " +
         std::to_string(trace.ranks.size()) + " ranks; --trace has all\n";
}

std::string timeline_text(const Program& program, const Timeline& timeline, int width,
                          const Terminal& terminal) {
  return timeline_text(traces::trace_timeline(program, timeline), width, terminal);
}

}  // namespace pipewright::tools
