// The chain of what held back the start of an instruction, walked backwards: before it what ended
// last of all that it waited for, and so on. The critical path is the one before the end of a step.
#pragma once

#include <cstdint>
#include <vector>

#include "core/timeline/timeline.hpp"
#include "traces/analysis/critical_path.hpp"

namespace pipewright::traces {

/// Of one timeline. Built in O(instructions). The Program and the timeline must outlive it.
class BackwardPath {
 public:
  BackwardPath(const Program& program, const Timeline& timeline, Times times);

  /// What ended last of all (ties: the first in the Program); kNoInstruction if nothing has.
  InstructionId last() const;
  /// Appends what lies before the end of `id`, its own time first, or before its start, backwards
  /// in time to `until`: each step ends where the one before it in the list starts. Steps may be
  /// empty: a collective that took no time, and a moment without a wait. A Collective is followed
  /// by a Wait with its last member, a Message by one with the end that stood ready later, or with
  /// that by which the path comes in where its rank was still computing.
  void before_end(InstructionId id, std::int64_t until, std::vector<PathStep>& steps);
  void before_start(InstructionId id, std::int64_t until, std::vector<PathStep>& steps);

 private:
  bool ended(InstructionId id) const { return timeline_.end[id] != kNotEnded; }
  void walk(InstructionId at);
  void add(InstructionId id, std::int64_t from, PathKind kind);
  InstructionId through(InstructionId id);
  InstructionId through_collective(InstructionId id);
  InstructionId last_before(InstructionId id) const;
  InstructionId overtaker(InstructionId id, std::int64_t by) const;
  template <class Look>
  void look_at_lane(InstructionId id, Look look) const;

  const Program& program_;
  const Timeline& timeline_;
  const Times times_;
  const LaneTable lanes_;
  std::vector<std::uint32_t> place_of_;             // by instruction, in lanes_.instructions
  std::vector<std::vector<InstructionId>> places_;  // by rank: places_in_flight()
  std::int64_t cursor_ = 0, until_ = 0;             // of the walk at hand
  std::vector<PathStep>* steps_ = nullptr;
};

}  // namespace pipewright::traces
