#include "traces/pictures/compute_view.hpp"

#include <algorithm>

namespace pipewright::traces {
namespace {

Look look_by_kind(const TraceSpan& span) {
  if (span.kind == SpanKind::Stuck) return Look::Stuck;
  if (span.kind == SpanKind::Transfer) return Look::Transfer;
  if (span.cell.partner) return Look::Pair;
  switch (span.cell.action.kind) {
    case ActionKind::F:
      return Look::F;
    case ActionKind::B:
      return Look::B;
    case ActionKind::I:
      return Look::I;
    case ActionKind::W:
      return Look::W;
    default:
      return Look::Other;
  }
}

}  // namespace

std::string_view name_of(Look look) {
  constexpr std::array<std::string_view, kLooks> kNames = {
      "F", "B", "I", "W", "pair", "update", "transfer", "stuck", "bubble"};
  return kNames[static_cast<std::size_t>(look)];
}

std::optional<Look> look_of(const TraceSpan& span) {
  // Computations count wherever another tool put them; the rest only on the compute lane.
  if (span.kind != SpanKind::Compute && span.lane != 0) return std::nullopt;
  if (span.end_ns <= span.start_ns) return std::nullopt;
  return look_by_kind(span);
}

ComputeView compute_view(const TraceTimeline& trace) {
  ComputeView view;
  view.end_ns = trace.makespan_ns;
  view.used[static_cast<std::size_t>(Look::Bubble)] = true;
  const bool forward_only = is_forward_only(trace);
  for (const TraceRank& rank : trace.ranks) {
    ViewedRank viewed{&rank, {}, busy_ns(rank), peak_activations(rank, forward_only)};
    for (const TraceSpan& span : rank.spans) {
      const std::optional<Look> look = look_of(span);
      if (!look) continue;
      if (look == Look::Stuck) view.end_ns = std::max(view.end_ns, span.end_ns);
      viewed.spans.push_back({&span, *look});
      view.used[static_cast<std::size_t>(*look)] = true;
    }
    view.ranks.push_back(std::move(viewed));
  }
  return view;
}

}  // namespace pipewright::traces
