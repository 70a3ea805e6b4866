#include "traces/analysis/overhead_causes.hpp"

#include <algorithm>

namespace pipewright::traces {
namespace {

/// Cuts a bubble where `ranges` begin and end; the parts inside get `cause`.
void recolour(const Bubble& bubble, const std::vector<TimeRange>& ranges, BubbleCause cause,
              std::vector<Bubble>& parts) {
  Bubble rest = bubble;
  const auto until = [&](std::int64_t moment, BubbleCause as) {
    const std::int64_t end = std::min(moment, bubble.end_ns);
    if (end <= rest.start_ns) return;
    Bubble part = rest;
    part.end_ns = end;
    part.cause = as;
    parts.push_back(part);
    rest.start_ns = end;
  };
  for (const TimeRange& range : ranges) {
    until(range.start_ns, bubble.cause);
    if (range.end_ns > rest.start_ns && range.start_ns < bubble.end_ns) until(range.end_ns, cause);
  }
  until(bubble.end_ns, bubble.cause);
}

std::vector<Bubble> recoloured(const std::vector<Bubble>& bubbles, const TraceTimeline& trace,
                               std::vector<TimeRange> TraceRank::*ranges, BubbleCause cause) {
  std::vector<std::vector<TimeRange>> sorted;
  for (const TraceRank& rank : trace.ranks) {
    sorted.push_back(rank.*ranges);
    std::sort(sorted.back().begin(), sorted.back().end(),
              [](const TimeRange& a, const TimeRange& b) { return a.start_ns < b.start_ns; });
  }
  std::vector<Bubble> result;
  for (const Bubble& bubble : bubbles) {
    if (bubble.cause != BubbleCause::Overhead) {
      result.push_back(bubble);
    } else {
      recolour(bubble, sorted[static_cast<std::size_t>(bubble.rank.value)], cause, result);
    }
  }
  return result;
}

}  // namespace

void explain_overhead(const TraceTimeline& trace, BubbleReport& report) {
  report.bubbles = recoloured(report.bubbles, trace, &TraceRank::waits, BubbleCause::Data);
  report.bubbles = recoloured(report.bubbles, trace, &TraceRank::posts, BubbleCause::Transfer);
  for (BubbleTotals& totals : report.ranks) totals = {};
  report.total = {};
  for (const Bubble& bubble : report.bubbles) {
    const auto cause = static_cast<std::size_t>(bubble.cause);
    report.ranks[static_cast<std::size_t>(bubble.rank.value)].ns[cause] +=
        bubble.end_ns - bubble.start_ns;
    report.total.ns[cause] += bubble.end_ns - bubble.start_ns;
  }
}

}  // namespace pipewright::traces
