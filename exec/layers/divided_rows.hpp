// What a divided layer does with rows where ranks have their own of them outside of it (sequence
// parallelism; Korthikanti and others, arXiv 2205.05198): all rows come together in front of it,
// and behind it each rank keeps its own of the sum. Rows are those of a micro-batch, its samples
// one after another; of n ranks each has an n-th of them, the first rank the first ones. One thread
// at a time.
#pragma once

#include <string>

#include "exec/layers/layer.hpp"
#include "exec/layers/tensor_group.hpp"

namespace pipewright::exec {

/// What the names of calls end with that gather or scatter rows: in front of a layer, behind it.
inline constexpr const char *kIn = "-in", *kOut = "-out";

class DividedRows {
 public:
  /// Of a layer at the site. Where that does not divide rows, own rows are all.
  explicit DividedRows(const LayerSite& site);

  /// Of so many rows this rank's.
  Range own(int rows) const;

  /// Rows that others have sent, or those that a rank had anyway.
  struct AllRows {
    const float* at = nullptr;
    Buffer held = {};
  };
  /// Of the calls of a layer (as_call_name()) on one of its sides: a plain sum has no side.
  std::string call_name(const std::string& layer, const char* side) const;

  /// own[own rows][width] to all rows. Pauses where rows are divided. `what`: as a sum has it.
  Task<AllRows> gather(std::string what, const float* own, int rows, int width) const;
  /// The same of what a layer keeps: all rows take the place of this rank's own.
  Task<void> complete(std::string what, Buffer& kept, int rows, int width) const;
  /// The sum over the ranks, or this rank's rows of it. Pauses. Of the sum without `values`.
  Task<void> sum(SumOfMembers sum, float* own) const;
  /// own[own rows][width] = this rank's rows of all.
  void keep_own(const float* all, int rows, int width, float* own) const;

 private:
  TensorOps& ops_;
  TensorGroup* const tensor_;
  const bool divides_;
};

}  // namespace pipewright::exec
