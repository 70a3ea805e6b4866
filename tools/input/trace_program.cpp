#include "tools/input/trace_program.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/order/problems.hpp"
#include "core/program/lower.hpp"

namespace pipewright::tools {
namespace {

using traces::SpanKind;
using traces::TraceSpan;
/// What stands under a name, in the order of time: OPT and the like may occur several times.
using SpansByText = std::map<std::string, std::vector<const TraceSpan*>>;

/// Whether a rank updates its weights within the step, and not only at its end.
bool updates_inside(const traces::TraceTimeline& trace) {
  return std::any_of(trace.ranks.begin(), trace.ranks.end(), [](const traces::TraceRank& rank) {
    return std::count_if(rank.spans.begin(), rank.spans.end(), [](const TraceSpan& span) {
             return span.kind != SpanKind::Stuck && span.cell.action.kind == ActionKind::Opt;
           }) > 1;
  });
}

/// PyTorch names the gathering of weights and its undoing even where there is nothing to gather.
bool computes_something(ActionKind kind) {
  return kind != ActionKind::Unshard && kind != ActionKind::Reshard && !is_wait(kind);
}

/// The computations of each rank, in the order in which they started. As CSV, because reading one
/// finds the placement of the stages too.
std::string csv_of(const traces::TraceTimeline& trace, bool with_updates, bool with_reductions) {
  std::string csv;
  for (const auto& rank : trace.ranks) {
    std::string row;
    for (const TraceSpan& span : rank.spans) {
      const ActionKind kind = span.cell.action.kind;
      if (span.kind != SpanKind::Compute || !computes_something(kind)) continue;
      if (kind == ActionKind::Opt && !with_updates) continue;
      if (kind == ActionKind::ReduceGrad && !with_reductions) continue;
      row += (row.empty() ? "" : ",") + to_string(span.cell);
    }
    csv += row + "\n";
  }
  return csv;
}

SpansByText spans_of(const traces::TraceRank& rank, const std::string& file) {
  SpansByText spans;
  for (const TraceSpan& span : rank.spans) {
    if (span.kind == SpanKind::Stuck) continue;
    const std::string text = to_string(span.cell);
    auto& under_name = spans[text];
    under_name.push_back(&span);
    if (under_name.size() > 1 && has_micro_batch(span.cell.action.kind) &&
        span.kind == SpanKind::Compute) {
      throw InputError(file, "rank " + std::to_string(rank.rank),
                       "action " + text + " occurs twice; expected a trace of one step");
    }
  }
  return spans;
}

class Filler {
 public:
  Filler(const Program& program, Timeline& timeline) : program_(program), timeline_(timeline) {}

  void fill(const std::vector<SpansByText>& spans) {
    const auto count = program_.code.size();
    timeline_.start.assign(count, kNotEnded);
    timeline_.end.assign(count, kNotEnded);
    timeline_.moving.assign(count, kNotEnded);
    std::vector<std::map<std::string, std::size_t>> next(spans.size());  // by rank and name
    for (InstructionId id = 0; id < count; ++id) {
      const auto rank = static_cast<std::size_t>(program_.rank_of(id).value);
      const auto found = spans[rank].find(program_.text(id));
      if (found == spans[rank].end()) continue;
      const std::size_t turn = next[rank][found->first]++;
      if (turn >= found->second.size()) continue;
      const TraceSpan& span = *found->second[turn];
      set(id, span.start_ns, span.moving_ns, span.end_ns);
    }
    find_ends_of_sends();
    for (InstructionId id = 0; id < count; ++id) {
      if (timeline_.end[id] == kNotEnded && is_send(program_.code[id].kind)) guess(id);
    }
  }

 private:
  void set(InstructionId id, std::int64_t start, std::int64_t moving, std::int64_t end) {
    timeline_.start[id] = start;
    timeline_.moving[id] = program_.code[id].is_communication() ? moving : start;
    timeline_.end[id] = end;
  }

  /// By RECV, the computation that uses what it brings.
  void find_ends_of_sends() {
    consumer_.assign(program_.code.size(), kNoInstruction);
    for (InstructionId id = 0; id < program_.code.size(); ++id) {
      const Instruction& in = program_.code[id];
      if (in.is_communication()) continue;
      if (in.link != kNoInstruction) consumer_[in.link] = id;
      for (const auto& [self, input] : program_.extra_inputs_of(id)) {
        if (is_recv(program_.code[input].kind)) consumer_[input] = id;
      }
    }
  }

  /// A transfer that the trace does not show: under way from its issue until it was needed.
  void guess(InstructionId send) {
    std::int64_t begin = 0;
    const auto first = program_.rank_begin[static_cast<std::size_t>(program_.rank_of(send).value)];
    for (InstructionId id = send; id-- > first;) {
      if (program_.code[id].is_communication()) continue;
      begin = std::max<std::int64_t>(0, timeline_.end[id]);
      break;
    }
    const InstructionId recv = program_.code[send].link;
    std::int64_t end = begin;
    if (recv != kNoInstruction && consumer_[recv] != kNoInstruction) {
      end = std::max(begin, timeline_.start[consumer_[recv]]);
    }
    set(send, begin, begin, end);
    if (recv != kNoInstruction && timeline_.end[recv] == kNotEnded) set(recv, begin, begin, end);
  }

  const Program& program_;
  Timeline& timeline_;
  std::vector<InstructionId> consumer_;  // by RECV
};

Order traced_computations(const traces::TraceTimeline& trace) {
  return read_order_csv(csv_of(trace, updates_inside(trace), false), trace.source);
}

}  // namespace

TraceProgram program_of_trace(const traces::TraceTimeline& trace) {
  std::vector<SpansByText> spans;
  for (const auto& rank : trace.ranks) spans.push_back(spans_of(rank, trace.source));
  const bool updates = std::any_of(spans.begin(), spans.end(), [](const SpansByText& of_rank) {
    return of_rank.contains("OPT");
  });
  const Order order = read_order_csv(csv_of(trace, updates_inside(trace), true), trace.source);
  TraceProgram result;
  result.program = lower(order, CommPolicy{}, {.fragment = true, .optimizer = updates});
  Filler(result.program, result.timeline).fill(spans);
  // REDUCE_GRAD and the like that a trace may not show take no time.
  for (InstructionId id = 0; id < result.program.code.size(); ++id) {
    if (result.timeline.end[id] != kNotEnded || id == 0) continue;
    const std::int64_t at = std::max<std::int64_t>(0, result.timeline.end[id - 1]);
    result.timeline.start[id] = result.timeline.moving[id] = result.timeline.end[id] = at;
  }
  result.timeline.makespan_ns = trace.makespan_ns;
  return result;
}

bool is_whole_pipeline(const traces::TraceTimeline& trace) {
  int last = 0;
  std::set<int> computed, sent, received;
  for (const traces::TraceRank& rank : trace.ranks) {
    for (const TraceSpan& span : rank.spans) {
      const Action& a = span.cell.action;
      if (a.kind == ActionKind::F) computed.insert(a.stage.value);
      if (a.kind == ActionKind::SendF) sent.insert(a.stage.value);
      if (a.kind == ActionKind::RecvF) received.insert(a.stage.value);
      if (has_stage(a.kind)) last = std::max(last, a.stage.value);
    }
  }
  return computed.contains(0) && !received.contains(0) && !sent.empty() && !sent.contains(last);
}

std::string why_no_order(const traces::TraceTimeline& trace) {
  for (std::size_t r = 0; r < trace.ranks.size() && !is_whole_pipeline(trace); ++r) {
    if (trace.ranks[r].rank == static_cast<int>(r) &&
        static_cast<int>(trace.ranks.size()) >= trace.world_size)
      continue;
    return "the traces of all ranks; these are " + std::to_string(trace.ranks.size()) +
           (trace.world_size > 0 ? " of " + std::to_string(trace.world_size)
                                 : " whose numbers leave some out");
  }
  const auto problems = problems_of(traced_computations(trace));
  return problems.empty() ? "" : "a trace of a whole step: " + problems.front();
}

Order order_of_trace(const traces::TraceTimeline& trace, const std::string& use) {
  if (const std::string why = why_no_order(trace); !why.empty())
    throw InputError(trace.source, "", use + " needs " + why);
  return traced_computations(trace);
}

}  // namespace pipewright::tools
