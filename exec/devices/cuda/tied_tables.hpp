// The sum of the gradients of a table that stages share (exec/layers/tied_head.hpp), without the
// host: each rank adds up what its own stages have, in the place of the first one's gradient; the
// ranks' sums are added up there, by the transport or from copies; and the other stages copy the
// whole. One thread at a time; the Queue and stages must outlive it. Not in exact numerics, whose
// sums are no floats.
#pragma once

#include <vector>

#include "exec/devices/cuda/queue.hpp"
#include "exec/devices/cuda/stage.hpp"
#include "exec/training/gradient_sums.hpp"

namespace pipewright::exec::cuda {

class TiedTables final : public TyingOnDevice {
 public:
  explicit TiedTables(Queue& queue) : queue_(queue), copies_(queue) {}
  /// From now on the transport adds up.
  void leave_sums_to_transport() { transport_sums_ = true; }
  std::int64_t copy_bytes() const { return copies_.bytes(); }

  /// Of those that share a table; all have it in one size.
  void add(Stage& stage) { stages_.push_back(&stage); }

  PartPtr tables(std::span<StageGradients* const> counted) override;
  void take(const std::vector<PartPtr>& parts) override;

 private:
  Queue& queue_;
  bool transport_sums_ = false;
  GradientCopies copies_;
  std::vector<Stage*> stages_;
};

}  // namespace pipewright::exec::cuda
