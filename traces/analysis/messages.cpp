#include "traces/analysis/messages.hpp"

#include <map>

namespace pipewright::traces {
namespace {

/// A tensor on its way: an activation of a stage, or the gradient of its inputs.
struct TensorKey {
  bool gradient;
  int stage, micro_batch;
  auto operator<=>(const TensorKey&) const = default;
};

struct Moment {
  std::size_t rank = 0;
  std::int64_t at_ns = 0;
  bool awaited = false;
};

/// One end of every message. A tensor without a message has no second end, or both on one rank.
struct Ends {
  std::map<TensorKey, Moment> begun, ended;

  void take(std::size_t rank, const Action& a, const TraceSpan& span) {
    if (is_call(a.kind)) return;
    const bool forward =
        a.kind == ActionKind::F || a.kind == ActionKind::SendF || a.kind == ActionKind::RecvF;
    const int source = a.stage.value + (forward ? -1 : 1);
    const TensorKey made{!forward, a.stage.value, a.micro_batch.value};
    const TensorKey taken{!forward, source, a.micro_batch.value};
    if (is_send(a.kind)) {
      // Later than the end of the computation, so the tighter bound of the two.
      begun.insert_or_assign(made, Moment{rank, span.start_ns});
    } else if (is_recv(a.kind)) {
      ended.insert_or_assign(taken, Moment{rank, span.end_ns, span.awaited});
    } else if (a.kind == ActionKind::F || a.kind == ActionKind::B || a.kind == ActionKind::I) {
      begun.try_emplace(made, Moment{rank, span.end_ns});
      ended.try_emplace(taken, Moment{rank, span.end_ns});
    }
  }
};

}  // namespace

void add_messages(const TraceTimeline& step, std::vector<Message>& messages) {
  Ends ends;
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    const WaitRule rule = step.ranks[r].wait_rule;
    const bool shows_arrival = rule == WaitRule::Receives || rule == WaitRule::Operators;
    for (const TraceSpan& span : step.ranks[r].spans) {
      if (is_recv(span.cell.action.kind) && !shows_arrival) continue;
      ends.take(r, span.cell.action, span);
      if (span.cell.partner) ends.take(r, *span.cell.partner, span);
    }
  }
  for (const auto& [tensor, begun] : ends.begun) {
    const auto found = ends.ended.find(tensor);
    if (found == ends.ended.end() || found->second.rank == begun.rank) continue;
    const Moment& ended = found->second;
    messages.push_back({begun.rank, ended.rank, begun.at_ns, ended.at_ns, ended.awaited});
  }
}

}  // namespace pipewright::traces
