// The ranges of a rank's thread that profilers show (NVTX): "rank 1 step 3", and in it each
// instruction while the host puts its work on the GPU, one after another, named as the Program
// names it: "0F3", "2B1", "1RECV_F0". Profilers tell from them what launched a kernel. Nothing is
// called where none has attached.
//
// One for each rank, used by its thread.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/program/program.hpp"
#include "exec/devices/cuda/module_api.h"

namespace pipewright::exec::cuda {

/// Whether a profiler looks at ranges.
inline bool is_profiled(const pipewright_cuda& cuda) {
  return cuda.is_profiled != nullptr && cuda.is_profiled() != 0;
}

class ActionRanges {
 public:
  /// The table must outlive it.
  ActionRanges(const pipewright_cuda& cuda, const Program& program, RankId rank)
      : cuda_(cuda), rank_(rank), first_(program.rank_begin[static_cast<std::size_t>(rank.value)]) {
    if (!is_profiled(cuda)) return;
    const InstructionId end = program.rank_begin[static_cast<std::size_t>(rank.value) + 1];
    for (InstructionId id = first_; id < end; ++id)
      names_.push_back(cuda_.range_name(program.text(id).c_str()));
    // A profiler that keeps no names shows none.
    if (std::count(names_.begin(), names_.end(), nullptr) > 0) names_.clear();
  }

  void begin_step(int step) {
    if (names_.empty()) return;
    const std::string text =
        "rank " + std::to_string(rank_.value) + " step " + std::to_string(step);
    cuda_.begin_range(cuda_.range_name(text.c_str()));
  }
  void begin(InstructionId id) {
    if (!names_.empty()) cuda_.begin_range(names_[id - first_]);
  }
  /// Of the one that began last.
  void end() noexcept {
    if (!names_.empty()) cuda_.end_range();
  }

 private:
  const pipewright_cuda& cuda_;
  const RankId rank_;
  const InstructionId first_;
  std::vector<void*> names_;  // by instruction of the list; empty: nobody looks
};

}  // namespace pipewright::exec::cuda
