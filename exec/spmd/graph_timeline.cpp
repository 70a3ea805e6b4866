#include "exec/spmd/graph_timeline.hpp"

#include <algorithm>
#include <limits>

#include "core/base/error.hpp"

namespace pipewright::exec::graphs {
namespace {

using SpansOfRanks = std::map<int, RankSpans>;

std::int64_t first_begin(const SpansOfRanks& spans) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const auto& [rank, own] : spans) {
    if (!own.actions.empty()) first = std::min(first, own.actions.front().begin_ns);
  }
  return first;
}

}  // namespace

Timeline timeline_of(const Program& program, const spmd::OperatorGraph& completed,
                     const spmd::PipelineStages& stages, const SpansOfRanks& spans) {
  const std::int64_t zero = first_begin(spans);
  Timeline timeline;
  timeline.start.assign(program.code.size(), kNotEnded);
  timeline.end = timeline.start;
  for (int rank = 0; rank < program.ranks(); ++rank) {
    const auto place = static_cast<std::size_t>(rank);
    const std::vector<int>& ranks = completed.meshes[stages.meshes[place]].mesh.ranks;
    const RankSpans& own = spans.at(ranks.front());
    auto next = own.actions.begin();
    auto part = own.parts.begin();
    std::int64_t now = 0;
    for (InstructionId at = program.rank_begin[place]; at < program.rank_begin[place + 1]; ++at) {
      const Instruction& one = program.code[at];
      if (program.action_of_part(at) != nullptr) {
        if (part == own.parts.end()) throw_bug(__FILE__, __LINE__, "a part has not run");
        timeline.start[at] = part->begin_ns - zero;
        now = (part++)->end_ns - zero;
      } else if (program.ends_parts(at)) {
        now = timeline.start[at] = (next++)->end_ns - zero;
      } else if (is_compute(one.kind) || one.kind == ActionKind::Opt) {
        timeline.start[at] = next->begin_ns - zero;
        if (one.has(Instruction::kPair)) ++next;
        now = (next++)->end_ns - zero;
      } else {
        timeline.start[at] = now;  // of a send: what it sends was made just before
      }
      timeline.end[at] = now;
      timeline.makespan_ns = std::max(timeline.makespan_ns, now);
    }
  }
  timeline.moving = timeline.start;
  for (InstructionId at = 0; at < program.code.size(); ++at) {
    const Instruction& one = program.code[at];
    if (one.kind != ActionKind::RecvF && one.kind != ActionKind::RecvB) continue;
    timeline.moving[at] = timeline.end[at] = std::max(timeline.start[at], timeline.end[one.link]);
  }
  return timeline;
}

}  // namespace pipewright::exec::graphs
