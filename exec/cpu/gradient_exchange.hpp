// Where the replicas of a stage sum their gradients (docs/semantics.md §3.2): each member lays down
// a copy of its part when it is reached, and takes all parts when it starts. Shared by the Devices
// of a run, each in its own thread, without a lock: a part is written by one rank before the end of
// the computation that the others wait for, and read by them after that wait.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/collectives.hpp"
#include "exec/cpu/gradient_part.hpp"

namespace pipewright::exec::cpu {

class GradientExchange {
 public:
  explicit GradientExchange(const Program& program);

  /// A part that a rank has to lay down: index of the collective and of its member.
  struct Duty {
    std::uint32_t collective = 0, member = 0;
  };
  /// Duties once the computation has ended; of a rank, before its first computation.
  std::span<const std::pair<InstructionId, Duty>> due_after(InstructionId computation) const;
  std::vector<Duty> due_at_start(RankId rank) const;
  StageId stage_of(const Duty& duty) const { return collectives_[duty.collective].stage; }

  void lay_down(const Duty& duty, GradientPart part);
  /// The collective that the REDUCE_GRAD is a member of; nullptr: it is alone.
  const std::uint32_t* collective_of(InstructionId reduction) const;
  /// By rank, ascending; all are there once the member may start.
  const std::vector<GradientPart>& parts(std::uint32_t collective) const {
    return tables_[collective].parts;
  }
  /// The member has read the parts; with the last one they go.
  void done(std::uint32_t collective);

 private:
  struct Table {
    std::vector<GradientPart> parts;
    std::unique_ptr<std::atomic<int>> readers;  // that have not read yet
  };

  std::vector<Collective> collectives_;
  std::vector<Table> tables_;                                          // by collective
  std::vector<std::pair<InstructionId, Duty>> after_;                  // by computation, sorted
  std::vector<std::pair<InstructionId, std::uint32_t>> of_reduction_;  // sorted
};

}  // namespace pipewright::exec::cpu
