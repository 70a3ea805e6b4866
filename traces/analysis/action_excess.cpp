#include "traces/analysis/action_excess.hpp"

#include <algorithm>

#include "traces/analysis/median_elsewhere.hpp"

namespace pipewright::traces {
namespace {

std::int64_t duration(const Timeline& timeline, InstructionId id) {
  return timeline.end[id] - timeline.start[id];
}

}  // namespace

std::int64_t excess_over_consumer(const Program& program, const Timeline& timeline,
                                  InstructionId producer, InstructionId consumer) {
  if (timeline.end[producer] == kNotEnded || timeline.end[consumer] == kNotEnded) return 0;
  const Instruction& a = program.code[producer];
  const Instruction& b = program.code[consumer];
  const bool both_pairs = a.has(Instruction::kPair) && b.has(Instruction::kPair);
  const bool neither = !a.has(Instruction::kPair) && !b.has(Instruction::kPair);
  if (!both_pairs && !(neither && a.kind == b.kind)) return 0;
  return std::max<std::int64_t>(0, duration(timeline, producer) - duration(timeline, consumer));
}

ActionExcess::ActionExcess(const Program& program, const Timeline& timeline) {
  std::vector<PlacedTime> times;
  std::vector<InstructionId> of;
  for (int rank = 0; rank < program.ranks(); ++rank) {
    int part = 0;  // how many of the same action stand before it
    const auto first = program.rank_begin[static_cast<std::size_t>(rank)];
    const auto end = program.rank_begin[static_cast<std::size_t>(rank) + 1];
    for (InstructionId id = first; id < end; ++id) {
      const Instruction& in = program.code[id];
      const Action* whole = program.action_of_part(id);
      const ActionKind kind = whole != nullptr ? whole->kind : in.kind;
      const int number = part;
      part = whole != nullptr ? part + 1 : 0;
      if (in.is_communication() || !has_stage(kind) || timeline.end[id] == kNotEnded) continue;
      const int pair = in.has(Instruction::kPair) ? 1 : 0;
      const int part_number = whole != nullptr ? number + 1 : 0;
      times.push_back({.kind = static_cast<int>(kind) + kActionKinds * (pair + 2 * part_number),
                       .stage = whole != nullptr ? whole->stage.value : in.stage,
                       .rank = rank,
                       .ns = duration(timeline, id)});
      of.push_back(id);
    }
  }
  over_median_.assign(program.code.size(), 0);
  const MedianElsewhere medians(times);
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (const auto median = medians.of_stage(i))
      over_median_[of[i]] = std::max<std::int64_t>(0, times[i].ns - *median);
  }
}

}  // namespace pipewright::traces
