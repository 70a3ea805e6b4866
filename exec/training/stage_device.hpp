// The seam between a stage and the device that computes it: operators, the parameters' store, the
// way of data from the host to the device, and losses, whose terms the device adds up
// (exec/devices/cpu/stage_device.hpp, exec/devices/cuda/stage_device.hpp). A call may only enqueue
// the work. Owns what it hands out; one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/base/buffer.hpp"
#include "exec/data/data.hpp"
#include "exec/evaluation/evaluation.hpp"
#include "exec/layers/layer.hpp"
#include "exec/layers/ops.hpp"
#include "exec/layers/optimizer.hpp"
#include "exec/layers/tensor_ops.hpp"
#include "exec/training/stage_weights.hpp"

namespace pipewright::exec {

class StageDevice {
 public:
  virtual ~StageDevice() = default;

  virtual TensorOps& ops() = 0;
  /// Makes the store of these parameters, which must outlive it: memory for those that have none,
  /// started as declared (exec/layers/parameters.hpp). Once, after the layers were made.
  virtual StageWeights& keep_parameters(const std::vector<Parameter*>& parameters,
                                        const OptimizerSpec& optimizer, std::uint64_t seed) = 0;

  /// Keeps a copy of what the stage needs of the micro-batch, until the next one of the same
  /// number.
  virtual void keep_batch(int micro_batch, const MicroBatch& batch, bool with_answers) = 0;
  /// First stage: its tokens or inputs.
  virtual Buffer input(int micro_batch) = 0;

  // Last stage: the losses of exec/layers/ops.hpp, of the micro-batch's answers. F leaves its sum
  // with the device.
  virtual void softmax_cross_entropy_forward(int micro_batch, const LossShape& shape,
                                             const float* logits, float* probabilities) = 0;
  virtual void softmax_cross_entropy_backward_input(int micro_batch, const LossShape& shape,
                                                    const float* probabilities, float scale,
                                                    float* dlogits) = 0;
  // The same where ranks have a part each of the logits (exec/layers/divided/divided_loss.hpp). Bug
  // where the device has none.
  virtual void tell_logits(int micro_batch, const LogitsPart& part, const float* logits,
                           float* facts);
  virtual void add_exponentials(const LogitsPart& part, const float* logits, const float* facts,
                                float* exponentials, float* sums);
  virtual void finish_cross_entropy(int micro_batch, const LogitsPart& part, const float* facts,
                                    const float* sums, float* probabilities);
  virtual void divided_cross_entropy_backward_input(int micro_batch, const LogitsPart& part,
                                                    const float* probabilities, float scale,
                                                    float* dlogits);
  virtual void mse_forward(int micro_batch, const LossShape& shape, const float* y) = 0;
  virtual void mse_backward_input(int micro_batch, const LossShape& shape, const float* y,
                                  float scale, float* dy) = 0;
  /// The latest sum. Bug if the host does not know one yet.
  virtual double loss_sum(int micro_batch) const = 0;
  // Where ranks have a part of every sequence each. Bug where the device does not do it.
  /// Writes the losses of this rank's rows to `at`, a double in the place of two floats.
  virtual void put_row_losses(int micro_batch, float* at);
  /// Those of all ranks, [parts][rows]: sum_of_losses() of the first samples takes the place of
  /// this rank's own sum.
  virtual void take_row_losses(int micro_batch, int samples, const float* all);
  // Forward only, last stage. F notes what the rows of this part of the last layer's output amount
  // to, with each row's number in `outputs`; then the host takes it, once. Bug if it does not know
  // it yet.
  virtual void note_outputs(int micro_batch, const LogitsPart& part, const float* outputs,
                            RunMode mode) = 0;
  virtual ForwardOutcome take_outcome(int micro_batch) = 0;
};

}  // namespace pipewright::exec
