// Softmax cross-entropy where ranks have a part each of every row of logits: the head of a model is
// divided by its columns. What the ranks bring together are two small sums, one with the largest
// logit of each rank and the target's, one with the exponentials of a row. Written once for the
// stage that trains and for whoever only counts what ranks tell one another.
#pragma once

#include <functional>

#include "exec/base/buffer.hpp"
#include "exec/base/task.hpp"
#include "exec/layers/context_group.hpp"
#include "exec/layers/tensor_group.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {

/// What a rank knows of its own part of the logits. Both write or add what is its own and leave the
/// rest; where `alone`, they overwrite all of the array with it.
struct OwnLogits {
  /// facts[rows][members + 1]: in the column of each rank its largest logit, in the last one the
  /// target's.
  std::function<void(bool alone, float* facts)> tell;
  /// sums[rows][kLossLanes], from all ranks' facts.
  std::function<void(bool alone, const float* facts, float* sums)> add_exponentials;
};

/// Of whoever only counts.
OwnLogits unknown_logits();

/// What all ranks know in the end.
struct LogitSums {
  Buffer facts, sums;
};

/// Pauses twice.
Task<LogitSums> bring_logits_together(TensorOps& ops, TensorGroup& group, int rows, OwnLogits own);

/// Where ranks have a part of every sequence each: the losses of all ranks' rows, member by member,
/// from those of this one, which has so many and which `put_own` writes. Each takes the place of
/// two floats, for sums over rows are taken in double (exec/layers/ops.hpp). Pauses once. No
/// function: whoever only counts.
Task<Buffer> bring_losses_together(TensorOps& ops, ContextGroup& group, int rows,
                                   std::function<void(float* at)> put_own);

}  // namespace pipewright::exec
