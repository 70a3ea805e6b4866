#include "traces/analysis/action_gaps.hpp"

#include <algorithm>

namespace pipewright::traces {
namespace {

/// Whether all inputs of the computation had ended by `time`.
bool is_ready_by(const Program& program, const Timeline& timeline, InstructionId id,
                 std::int64_t time) {
  const InstructionId link = program.code[id].link;
  if (link != kNoInstruction && timeline.end[link] > time) return false;
  const auto inputs = program.extra_inputs_of(id);
  return std::all_of(inputs.begin(), inputs.end(),
                     [&](const auto& row) { return timeline.end[row.second] <= time; });
}

}  // namespace

std::vector<std::int64_t> action_gaps(const Program& program, const Timeline& timeline) {
  std::vector<std::int64_t> gaps;
  for (std::size_t r = 0; r + 1 < program.rank_begin.size(); ++r) {
    InstructionId before = kNoInstruction;
    for (InstructionId id = program.rank_begin[r]; id < program.rank_begin[r + 1]; ++id) {
      const Instruction& in = program.code[id];
      if (in.is_communication()) {
        if (in.has(Instruction::kOnComputeLane)) before = kNoInstruction;
        continue;
      }
      if (before != kNoInstruction && is_ready_by(program, timeline, id, timeline.end[before]))
        gaps.push_back(std::max<std::int64_t>(0, timeline.start[id] - timeline.end[before]));
      before = id;
    }
  }
  std::sort(gaps.begin(), gaps.end());
  return gaps;
}

}  // namespace pipewright::traces
