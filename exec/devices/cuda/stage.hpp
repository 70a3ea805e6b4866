// A stage on a GPU (exec/training/stage.hpp), whose messages are Buffers there: all that its calls
// do is work that is put on the queue's computing stream. The host sees losses, and whether
// gradients were numbers, when end_step() has enqueued their copies and the stream is done:
// read_step(). Its layers' Parameters are what the weights begin with, and hold what download() has
// brought. The Queue must outlive the Stage. One thread at a time; functions that wait say so, and
// call the constructor's `between` meanwhile.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "exec/devices/cuda/gradient_copies.hpp"
#include "exec/devices/cuda/parameters.hpp"
#include "exec/devices/cuda/queue.hpp"
#include "exec/training/stage.hpp"

namespace pipewright::exec::cuda {

class StageDevice;  // exec/devices/cuda/stage_device.hpp

/// The gradient of a table that stages share, where the GPU has it, and the elements of it that
/// this replica brings to the sum.
struct TableGradient {
  float* at = nullptr;
  std::size_t size = 0;
  ElementRange own;
};

class Stage final : public TrainableStage {
 public:
  /// Throws InputError if the layers do not fit each other, or no GPU trains them. Functions that
  /// wait (squares(), and what brings parts to the host or takes some from it) call `between` as
  /// Queue::finish() does. In another mode than Train it is forward_only(). `shard`: among the
  /// replicas for which own_shard() will be called.
  Stage(Queue& queue, const StageSpec& spec, std::function<void()> between = {},
        RunMode mode = RunMode::Train, const OwnShard& shard = {});

  /// Between steps: what they read on the host. Old gradients are gone, and so is a fetched state.
  void begin_step(int step);

  /// What micro-batches without meaning have left is gone.
  void end_rehearsal();

  /// Not in exact numerics, whose sums are no floats: from now on the transport sums gradients
  /// where they lie; or ranks that are threads of this process add up copies.
  void leave_sums_to_transport() { sums_on_gpu_ = true; }
  void add_copies();
  std::int64_t copy_bytes() const { return copies_ ? copies_->bytes() : 0; }
  PartPtr part_on_device() override;
  bool takes_from_device(const std::vector<PartPtr>& parts) override;
  /// Of a stage that shares_table(); zeros where nothing went in.
  TableGradient table_gradient();
  /// Of a sharded stage, the same of what layers read of the weights, whose own part is there, and
  /// of the gradients where they are to be looked at: null, and false, where the host brings them.
  PartPtr weights_on_device(bool with_gradients);
  bool takes_weights_from_device(const std::vector<PartPtr>& parts);
  /// Before the first step: whole gradients, which it makes if there are none, go, and whoever
  /// holds the buffer has the memory that they have while they are summed.
  Buffer let_go_of_gradients();

  /// Enqueues the copies of the step's facts to the host; read_step() when the stream is done. Then
  /// there are losses and outcomes, and not_finite() tells of exact numerics' or clipped gradients;
  /// of others the loss of the next step tells.
  void end_step();
  void read_step();

  /// Waits: parameters() has the GPU's weights and gradients.
  void download();
  /// Where they are.
  Parameters& weights() const;

 private:
  StageDevice& on() const;
  Event made() const;
  bool sums_on_gpu() const;

  bool sums_on_gpu_ = false;
  std::optional<GradientCopies> copies_;  // of replicas, if the transport does not sum
};

}  // namespace pipewright::exec::cuda
