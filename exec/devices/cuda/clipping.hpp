// The norm of all gradients, and the scaling by it, without the host: each rank sums the squares of
// its gradients on its GPU (exec/training/gradient_norm.hpp has the numbers), the sums come
// together, and each computes the factor for itself. Ranks that are threads of one process copy the
// others' sums from where they lie, so a captured step holds it. A transport that sums adds up a
// float64 of each, in place. One thread at a time; the Queue, stages and parameters must outlive
// it.
#pragma once

#include <utility>
#include <vector>

#include "exec/devices/cuda/parameters.hpp"
#include "exec/devices/cuda/queue.hpp"
#include "exec/training/gradient_sums.hpp"

namespace pipewright::exec::cuda {

class Clipping final : public ClippingOnDevice {
 public:
  /// Takes its memory here. `most`: 0 if nothing is clipped, and sums are only handed in.
  Clipping(Queue& queue, int ranks, double most);
  /// From now on the transport adds up.
  void leave_sums_to_transport() { transport_sums_ = true; }

  void add(StageGradients& stage, Parameters& parameters) {
    stages_.emplace_back(&stage, &parameters);
  }

  PartPtr squares(std::span<StageGradients* const> counted) override;
  void clip(const std::vector<PartPtr>& parts) override;

 private:
  void make_factor(const std::vector<PartPtr>& parts);
  void take_factor(const PartPtr& sum);

  Queue& queue_;
  const double most_;
  std::vector<std::pair<StageGradients*, Parameters*>> stages_;
  bool transport_sums_ = false;
  Buffer own_, gathered_, factor_;  // four words; of each rank four; a float
  Buffer number_;                   // a float64
};

}  // namespace pipewright::exec::cuda
