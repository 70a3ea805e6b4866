// F and I of the loss, behind the last layer.
#pragma once

#include "exec/base/buffer.hpp"
#include "exec/base/run_mode.hpp"
#include "exec/base/task.hpp"
#include "exec/layers/rank_groups.hpp"
#include "exec/training/stage_device.hpp"
#include "exec/training/stage_shape.hpp"

namespace pipewright::exec {

/// F. Takes the last layer's output; the result is what I needs of it. StageDevice::loss_sum() has
/// the loss's sum over loss_terms().
/// Pauses where the ranks of `groups` have a part each of the output, or of its rows.
Task<Buffer> loss_forward(StageDevice& device, const StageShape& shape, int micro_batch,
                          Buffer output, RankGroups& groups);
/// F, forward only: the device notes what this rank's part of the output amounts to, of the first
/// `samples`, for outcome_of(). Pauses as loss_forward() does, but not in a prediction.
Task<void> note_outcome(StageDevice& device, const StageShape& shape, int micro_batch, int samples,
                        Buffer output, RankGroups& groups, RunMode mode);
/// What was noted, once, when the host knows it.
ForwardOutcome outcome_of(StageDevice& device, const StageShape& shape, int micro_batch,
                          int samples, RunMode mode);
/// I, from what F has kept: the gradient of the output, where `divisor` micro-batches share the
/// gradient of their mean loss.
Buffer loss_gradient(StageDevice& device, const StageShape& shape, int micro_batch, Buffer kept,
                     double divisor, const TensorGroup* tensor);
/// Of the losses of all ranks' rows, [parts][rows] of doubles in the place of two floats each,
/// where ranks have a part of every sequence each: the sum over the first samples, in the order of
/// the sequences, as a single rank adds them.
double sum_of_losses(const StageShape& shape, int samples, const float* losses);
/// Of a whole micro-batch's mean: its rows, or for mse all numbers of its output.
double loss_terms(const StageShape& shape);

}  // namespace pipewright::exec
