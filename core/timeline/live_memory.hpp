// What a rank holds along its compute lane (docs/semantics.md §6): live activations, and bytes by
// the memory table. One walk, asked by whoever wants its peaks and by whoever draws it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/program/program.hpp"
#include "core/program/version_changes.hpp"
#include "core/timeline/whole_arrays.hpp"

namespace pipewright {

class LiveMemory {
 public:
  /// `stages`: the rank's. `forward_only`: is_forward_only(program), which is the same for all
  /// ranks. Program and table must outlive it.
  LiveMemory(const Program& program, const CostTable& costs, RankId rank,
             const std::vector<StageId>& stages, bool forward_only);

  /// The rank's next instruction runs and ends.
  void pass();

  /// Now: what is kept until the next instruction starts.
  int activations() const { return activations_; }
  std::int64_t bytes() const { return bytes_; }
  /// The most at any moment since the beginning, or since forget_peaks().
  int peak_activations() const { return peak_activations_; }
  std::int64_t peak_bytes() const { return peak_bytes_; }
  void forget_peaks();

 private:
  void run(const Action& action);
  void take(const Action& action);
  void take(const VersionChange& version);
  void take(std::int64_t bytes);
  void let_go(const StageMemory* memory);
  std::int64_t copied_by(const Instruction& in) const;
  const StageMemory* of(int stage) const;

  const Program& program_;
  const CostTable& costs_;
  const bool forward_only_, divides_, copies_;
  std::vector<VersionChange> versions_;
  std::size_t next_version_ = 0;
  WholeArrays whole_;
  InstructionId begin_, next_;
  int activations_ = 0, peak_activations_ = 0;
  std::int64_t bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace pipewright
