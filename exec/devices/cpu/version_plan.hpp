// Which weights a rank's computations use, and until when each version is needed
// (docs/semantics.md §3.1). Read off the Program once; immutable after that.
#pragma once

#include <cstdint>
#include <vector>

#include "core/program/program.hpp"

namespace pipewright::exec::cpu {

class VersionPlan {
 public:
  VersionPlan(const Program& program, RankId rank);

  /// The version that F, I, W and B of the micro-batch use on this rank; 0 where none is named.
  int version_of(int stage, int micro_batch) const {
    return versions_[static_cast<std::size_t>(stage) * micro_batches_ +
                     static_cast<std::size_t>(micro_batch)];
  }
  /// Whether a computation after `id` in this rank's list uses the version.
  bool is_used_behind(int stage, int version, InstructionId id) const;

 private:
  void note(InstructionId id, const Action& action);

  std::size_t micro_batches_;
  std::vector<std::int32_t> versions_;                 // by stage and micro-batch
  std::vector<std::vector<InstructionId>> last_uses_;  // by stage, then version
};

}  // namespace pipewright::exec::cpu
