// What a rank's thread is about while it puts work on its GPU, for a recording of what GPUs do
// (exec/devices/cuda/activities.hpp): an instruction, or else the rank's step. Where nothing is
// recorded, nothing is called.
//
// One for each rank, used by its thread.
#pragma once

#include <cstdint>
#include <optional>

#include "core/program/program.hpp"
#include "exec/devices/cuda/module_api.h"

namespace pipewright::exec::cuda {

/// Instructions and ranks as the numbers that the table takes, which are not 0.
struct AboutNumbers {
  const Program& program;

  static std::uint64_t of(InstructionId id) { return std::uint64_t{id} + 1; }
  std::uint64_t of(RankId rank) const {
    return program.code.size() + 1 + static_cast<std::uint64_t>(rank.value);
  }
  /// Of such a number, but 0.
  RankId rank_of(std::uint64_t about) const {
    if (const InstructionId id = instruction_of(about); id != kNoInstruction)
      return program.rank_of(id);
    return RankId(static_cast<std::int32_t>(about - program.code.size() - 1));
  }
  InstructionId instruction_of(std::uint64_t about) const {
    return about <= program.code.size() ? static_cast<InstructionId>(about - 1) : kNoInstruction;
  }
};

class ActivityMarks {
 public:
  /// `cuda` null: nothing is recorded.
  ActivityMarks(const pipewright_cuda* cuda, const Program& program, RankId rank)
      : cuda_(cuda), rank_(AboutNumbers{program}.of(rank)) {}

  void begin_step() { begin(rank_); }
  void begin(InstructionId id) { begin(AboutNumbers::of(id)); }
  /// Of what began last.
  void end() noexcept {
    if (cuda_ != nullptr) cuda_->end_about();
  }

 private:
  void begin(std::uint64_t about) {
    if (cuda_ != nullptr) cuda_->begin_about(about);
  }

  const pipewright_cuda* const cuda_;
  const std::uint64_t rank_;
};

}  // namespace pipewright::exec::cuda
