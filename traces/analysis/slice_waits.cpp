#include "traces/analysis/slice_waits.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace pipewright::traces {
namespace {

bool is_update(const TraceSpan& span) { return span.cell.action.kind == ActionKind::Opt; }

/// The RECVs that a computation needs if what feeds it is on another rank.
std::vector<Action> receives_of(const Cell& cell) {
  std::vector<Action> needed;
  const auto add = [&](const Action& a) {
    const bool forward = a.kind == ActionKind::F;
    if (!forward && a.kind != ActionKind::B && a.kind != ActionKind::I) return;
    needed.push_back({.kind = forward ? ActionKind::RecvF : ActionKind::RecvB,
                      .stage = a.stage,
                      .micro_batch = a.micro_batch});
  };
  add(cell.action);
  if (cell.partner) add(*cell.partner);
  return needed;
}

bool by_time(const TimeRange& a, const TimeRange& b) {
  return std::tie(a.start_ns, a.end_ns) < std::tie(b.start_ns, b.end_ns);
}

/// Sorted, those that touch made one.
std::vector<TimeRange> merged(std::vector<TimeRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), by_time);
  std::vector<TimeRange> result;
  for (const TimeRange& range : ranges) {
    if (result.empty() || range.start_ns > result.back().end_ns) {
      result.push_back(range);
    } else {
      result.back().end_ns = std::max(result.back().end_ns, range.end_ns);
    }
  }
  return result;
}

/// Those of sorted ranges that begin within [start, end].
std::vector<TimeRange> begun_within(const std::vector<TimeRange>& ranges, std::int64_t start,
                                    std::int64_t end) {
  std::vector<TimeRange> result;
  for (auto next = std::lower_bound(ranges.begin(), ranges.end(), TimeRange{start, start}, by_time);
       next != ranges.end() && next->start_ns <= end; ++next) {
    result.push_back(*next);
  }
  return result;
}

/// From the end of the last operator before `moment`, but not from before `start`, until `moment`;
/// nullopt if an operator runs at that moment.
std::optional<TimeRange> idle_before(const std::vector<TimeRange>& operators, std::int64_t start,
                                     std::int64_t moment) {
  const auto next =
      std::lower_bound(operators.begin(), operators.end(), TimeRange{moment, moment}, by_time);
  const std::int64_t from =
      next == operators.begin() ? start : std::max(start, std::prev(next)->end_ns);
  if (from >= moment) return std::nullopt;
  return TimeRange{from, moment};
}

void take_out(TraceSpan& span, std::vector<TimeRange> waits, TraceRank& rank) {
  std::int64_t begin = span.start_ns;
  for (const TimeRange& wait : merged(std::move(waits))) begin += wait.end_ns - wait.start_ns;
  if (begin == span.start_ns) return;
  rank.waits.push_back({span.start_ns, begin});
  span.start_ns = span.moving_ns = begin;
}

/// The trace does not show when data began to move: the message gets the length of the slice that
/// issued it.
void arrive_at(TraceSpan& receive, std::int64_t moment) {
  const std::int64_t length = receive.duration_ns();
  receive.end_ns = std::max(receive.end_ns, moment);
  receive.moving_ns = receive.end_ns - length;
}

/// A RECV whose end is not shown is taken to be under way until it is needed.
void end_receives_where_needed(TraceRank& rank) {
  std::map<std::string, TraceSpan*> receives;
  for (TraceSpan& span : rank.spans) {
    if (span.kind == SpanKind::Transfer && is_recv(span.cell.action.kind)) {
      receives[to_string(span.cell)] = &span;
    }
  }
  for (const TraceSpan& span : rank.spans) {
    if (span.kind != SpanKind::Compute) continue;
    for (const Action& receive : receives_of(span.cell)) {
      const auto found = receives.find(to_string(Cell{receive, std::nullopt}));
      if (found == receives.end()) continue;
      arrive_at(*found->second, span.start_ns);
    }
  }
}

class Separator {
 public:
  Separator(TraceRank& rank, const SliceSurroundings& around)
      : rank_(rank), operators_(around.operators) {
    for (TraceSpan& span : rank.spans) {
      if (is_compute(span.cell.action.kind) || is_update(span)) continue;
      if (!around.on_device) rank_.posts.push_back({span.start_ns, span.end_ns});
      if (is_recv(span.cell.action.kind)) take_arrival(span, around.receives);
    }
  }

  void run() {
    const bool shown = std::any_of(rank_.spans.begin(), rank_.spans.end(), [&](const auto& span) {
      return is_compute(span.cell.action.kind) && first_operator(span);
    });
    rank_.wait_rule = !arrived_.empty() ? WaitRule::Receives
                      : shown           ? WaitRule::Operators
                                        : WaitRule::Unknown;
    for (TraceSpan& span : rank_.spans) {
      if (!is_compute(span.cell.action.kind) || span.kind == SpanKind::Stuck) continue;
      if (rank_.wait_rule == WaitRule::Receives) by_receives(span);
      if (rank_.wait_rule == WaitRule::Operators) by_operators(span);
    }
    if (rank_.wait_rule == WaitRule::Operators) end_receives_where_needed(rank_);
  }

 private:
  void take_arrival(TraceSpan& span, const std::vector<TimeRange>& receives) {
    const auto begun = begun_within(receives, span.start_ns, span.end_ns);
    issued_.insert(to_string(span.cell));
    if (begun.empty()) return;
    std::int64_t last = span.end_ns;  // of a batch
    for (const TimeRange& range : begun) last = std::max(last, range.end_ns);
    arrive_at(span, last);
    arrived_[to_string(span.cell)] = &span;
  }

  std::optional<std::int64_t> first_operator(const TraceSpan& span) const {
    const auto next = std::lower_bound(operators_.begin(), operators_.end(),
                                       TimeRange{span.start_ns, span.start_ns}, by_time);
    if (next == operators_.end() || next->start_ns >= span.end_ns) return std::nullopt;
    return next->start_ns;
  }

  void by_receives(TraceSpan& span) {
    std::vector<TimeRange> waits;
    for (const Action& receive : receives_of(span.cell)) {
      const auto found = arrived_.find(to_string(Cell{receive, std::nullopt}));
      if (found == arrived_.end()) continue;
      const std::int64_t arrived = std::min(found->second->end_ns, span.end_ns);
      const auto wait = idle_before(operators_, span.start_ns, arrived);
      if (wait) waits.push_back(*wait);
      found->second->awaited = wait && arrived == found->second->end_ns;
    }
    take_out(span, std::move(waits), rank_);
  }

  void by_operators(TraceSpan& span) {
    auto until = first_operator(span);
    if (!until && needs_receive(span)) until = span.end_ns;  // nothing is computed
    if (until) take_out(span, {{span.start_ns, *until}}, rank_);
  }

  bool needs_receive(const TraceSpan& span) const {
    const auto needed = receives_of(span.cell);
    return std::any_of(needed.begin(), needed.end(), [&](const Action& receive) {
      return issued_.contains(to_string(Cell{receive, std::nullopt}));
    });
  }

  TraceRank& rank_;
  const std::vector<TimeRange>& operators_;
  std::set<std::string> issued_;               // RECVs
  std::map<std::string, TraceSpan*> arrived_;  // by name: the RECVs whose end is shown
};

void sort_by_start(std::vector<TraceSpan>& spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const TraceSpan& a, const TraceSpan& b) {
    return std::tie(a.start_ns, a.end_ns) < std::tie(b.start_ns, b.end_ns);
  });
}

/// A step of the optimizer is one update, however many slices it has.
void join_updates(TraceRank& rank) {
  TraceSpan* update = nullptr;
  std::vector<TraceSpan> spans;
  spans.reserve(rank.spans.size());
  for (const TraceSpan& span : rank.spans) {
    if (update != nullptr && is_update(span)) {
      update->end_ns = std::max(update->end_ns, span.end_ns);
      continue;
    }
    spans.push_back(span);
    if (span.kind == SpanKind::Compute) update = is_update(span) ? &spans.back() : nullptr;
  }
  rank.spans = std::move(spans);
}

}  // namespace

SliceSurroundings in_order(SliceSurroundings around) {
  std::sort(around.receives.begin(), around.receives.end(), by_time);
  around.operators = merged(std::move(around.operators));
  return around;
}

void separate_waits(TraceRank& rank, const SliceSurroundings& around) {
  join_updates(rank);
  Separator(rank, around).run();
  sort_by_start(rank.spans);
}

void separate_waits_by_producers(TraceTimeline& trace) {
  struct Made {
    int rank;
    std::int64_t end_ns;
  };
  std::map<std::string, Made> made;  // by the RECV that takes it on the next stage
  for (const TraceRank& rank : trace.ranks) {
    for (const TraceSpan& span : rank.spans) {
      if (span.kind != SpanKind::Compute) continue;
      for (Action receive : receives_of(span.cell)) {
        receive.stage.value += receive.kind == ActionKind::RecvF ? 1 : -1;
        made[to_string(Cell{receive, std::nullopt})] = {rank.rank, span.end_ns};
      }
    }
  }
  for (TraceRank& rank : trace.ranks) {
    if (rank.wait_rule != WaitRule::Unknown || trace.ranks.size() < 2) continue;
    rank.wait_rule = WaitRule::Producers;
    for (TraceSpan& span : rank.spans) {
      if (!is_compute(span.cell.action.kind)) continue;
      std::vector<TimeRange> waits;
      for (const Action& receive : receives_of(span.cell)) {
        const auto found = made.find(to_string(Cell{receive, std::nullopt}));
        if (found == made.end() || found->second.rank == rank.rank) continue;
        const std::int64_t end = std::min(found->second.end_ns, span.end_ns);
        if (end > span.start_ns) waits.push_back({span.start_ns, end});
      }
      take_out(span, std::move(waits), rank);
    }
    end_receives_where_needed(rank);
    sort_by_start(rank.spans);
  }
}

std::string_view to_string(WaitRule rule) {
  switch (rule) {
    case WaitRule::Unneeded:
      return "unneeded";
    case WaitRule::Receives:
      return "receives";
    case WaitRule::Operators:
      return "operators";
    case WaitRule::Producers:
      return "producers";
    case WaitRule::Unknown:
      return "unknown";
  }
  return "";
}

}  // namespace pipewright::traces
