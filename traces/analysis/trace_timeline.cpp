#include "traces/analysis/trace_timeline.hpp"

#include <algorithm>
#include <tuple>

#include "core/order/forward_order.hpp"

namespace pipewright::traces {
namespace {

void append_action_name(const Action& action, std::string& out) {
  out += to_string(action.kind);
  if (!has_stage(action.kind)) return;
  if (has_micro_batch(action.kind)) {
    out += " m";
    out += std::to_string(action.micro_batch.value);
  }
  out += " s";
  out += std::to_string(action.stage.value);
  if (action.version >= 0) {
    out += " v";
    out += std::to_string(action.version);
  }
}

void sort_spans(std::vector<TraceSpan>& spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const TraceSpan& a, const TraceSpan& b) {
    return std::tie(a.start_ns, a.end_ns) < std::tie(b.start_ns, b.end_ns);
  });
}

}  // namespace

void append_slice_name(const Cell& cell, std::string& out) {
  append_action_name(cell.action, out);
  if (!cell.partner) return;
  out += " + ";
  append_action_name(*cell.partner, out);
}

std::vector<StuckSpan> stuck_spans(const Program& program, const LaneTable& lanes,
                                   const Timeline& timeline) {
  std::vector<StuckSpan> spans;
  for (std::uint32_t lane = 0; lane < lanes.count(); ++lane) {
    std::int64_t last_end = 0;
    for (const InstructionId id : lanes.instructions_of(lane)) {
      if (timeline.end[id] != kNotEnded) {
        last_end = std::max(last_end, timeline.end[id]);
        continue;
      }
      // A transfer end whose time has not come yet stands in no queue. A computation at the head of
      // its lane waits since the one before it ended.
      const bool ready = timeline.start[id] != kNotEnded;
      if (ready || !program.code[id].is_communication()) {
        spans.push_back({id, ready ? timeline.start[id] : last_end});
      }
      break;
    }
  }
  return spans;
}

std::int64_t trace_end_ns(const Timeline& timeline, bool stuck) {
  constexpr std::int64_t kLeastTail = 1000;
  if (!stuck) return timeline.makespan_ns;
  return timeline.makespan_ns + std::max(timeline.makespan_ns / 20, kLeastTail);
}

Cell drawn_cell(const Program& program, InstructionId id) {
  const ActionKind kind = program.code[id].kind;
  if (kind == ActionKind::Part) return {*program.action_of_part(id), std::nullopt};
  return is_call(kind) ? Cell{{.kind = kind, .stage = {}, .micro_batch = {}}, std::nullopt}
                       : program.cell(id);
}

TraceTimeline trace_timeline(const Program& program, const Timeline& timeline) {
  const LaneTable lanes = lane_table(program);
  const std::vector<StuckSpan> stuck = stuck_spans(program, lanes, timeline);
  TraceTimeline trace;
  trace.makespan_ns = timeline.makespan_ns;
  trace.ranks.resize(static_cast<std::size_t>(program.ranks()));
  for (std::uint32_t lane = 0; lane < lanes.count(); ++lane) {
    TraceRank& rank = trace.ranks[static_cast<std::size_t>(lanes.rank_of_lane[lane].value)];
    rank.rank = lanes.rank_of_lane[lane].value;
    const auto number = static_cast<std::uint32_t>(rank.lanes.size());
    rank.lanes.push_back(lane_name(program, lanes, lane));
    for (const InstructionId id : lanes.instructions_of(lane)) {
      if (timeline.end[id] == kNotEnded) continue;
      const Instruction& in = program.code[id];
      const bool transfer = in.is_communication() || is_call(in.kind);
      TraceSpan span{.kind = transfer ? SpanKind::Transfer : SpanKind::Compute,
                     .cell = drawn_cell(program, id),
                     .lane = number,
                     .start_ns = timeline.start[id],
                     .moving_ns = timeline.start[id],
                     .end_ns = timeline.end[id],
                     .is_part = in.kind == ActionKind::Part};
      if (transfer) {
        span.moving_ns = std::min(std::max(timeline.moving[id], span.start_ns), span.end_ns);
      }
      rank.spans.push_back(span);
    }
  }
  const std::int64_t end = trace_end_ns(timeline, !stuck.empty());
  for (const StuckSpan& head : stuck) {
    const std::uint32_t lane = lanes.lane_of[head.instruction];
    const int rank = lanes.rank_of_lane[lane].value;
    trace.ranks[static_cast<std::size_t>(rank)].spans.push_back(
        {.kind = SpanKind::Stuck,
         .cell = drawn_cell(program, head.instruction),
         .lane = lane - lanes.rank_lane_begin[static_cast<std::size_t>(rank)],
         .start_ns = head.start_ns,
         .moving_ns = head.start_ns,
         .end_ns = end});
  }
  for (TraceRank& rank : trace.ranks) sort_spans(rank.spans);
  return trace;
}

void retime(TraceRank& rank, const std::function<std::int64_t(std::int64_t)>& time_of) {
  for (TraceSpan& span : rank.spans) {
    span.start_ns = time_of(span.start_ns);
    span.moving_ns = time_of(span.moving_ns);
    span.end_ns = time_of(span.end_ns);
  }
  for (auto* ranges : {&rank.waits, &rank.posts}) {
    for (TimeRange& range : *ranges) {
      range.start_ns = time_of(range.start_ns);
      range.end_ns = time_of(range.end_ns);
    }
  }
}

void shift(TraceRank& rank, std::int64_t by_ns) {
  retime(rank, [by_ns](std::int64_t time) { return time + by_ns; });
}

std::int64_t begin_ns(const TraceRank& rank) {
  std::int64_t first = rank.spans.front().start_ns;
  for (const TimeRange& wait : rank.waits) first = std::min(first, wait.start_ns);
  return first;
}

std::int64_t busy_ns(const TraceRank& rank) {
  std::int64_t busy = 0;
  for (const TraceSpan& span : rank.spans) {
    if (span.kind == SpanKind::Compute) busy += span.duration_ns();
  }
  return busy;
}

bool is_forward_only(const TraceTimeline& trace) {
  for (const TraceRank& rank : trace.ranks) {
    for (const TraceSpan& span : rank.spans) {
      if (belongs_to_backward(span.cell.action.kind)) return false;
      if (span.cell.partner && belongs_to_backward(span.cell.partner->kind)) return false;
    }
  }
  return true;
}

void LiveActivations::add(const Cell& cell) {
  // In a pair the forward counts first, wherever it is written.
  const bool swap = cell.partner && cell.partner->kind == ActionKind::F;
  if (swap) take(*cell.partner);
  take(cell.action);
  if (cell.partner && !swap) take(*cell.partner);
}

void LiveActivations::take(const Action& action) {
  if (action.kind == ActionKind::F) ++live_;
  peak_ = std::max(peak_, live_);
  if (action.kind == ActionKind::W || action.kind == ActionKind::B || forward_only_) --live_;
}

int peak_activations(const TraceRank& rank, bool forward_only) {
  LiveActivations live(forward_only);
  for (const TraceSpan& span : rank.spans) {
    if (span.kind == SpanKind::Compute && !span.is_part) live.add(span.cell);
  }
  return live.peak();
}

}  // namespace pipewright::traces
