// The norm of all gradients, and the scaling by it, without the host: each rank sums the squares of
// its gradients on its GPU (exec/training/gradient_norm.hpp has the numbers), the others copy the
// sum from there, and each computes the factor for itself. So nothing waits, and a captured step
// holds it. For ranks that are threads of one process. One thread at a time; the Queue, stages and
// parameters must outlive it.
#pragma once

#include <utility>
#include <vector>

#include "exec/devices/cuda/parameters.hpp"
#include "exec/devices/cuda/queue.hpp"
#include "exec/training/gradient_sums.hpp"

namespace pipewright::exec::cuda {

class Clipping final : public ClippingOnDevice {
 public:
  /// Takes its memory here.
  Clipping(Queue& queue, int ranks, double most);

  void add(StageGradients& stage, Parameters& parameters) {
    stages_.emplace_back(&stage, &parameters);
  }

  PartPtr squares(std::span<StageGradients* const> counted) override;
  void clip(const std::vector<PartPtr>& parts) override;

 private:
  Queue& queue_;
  const double most_;
  std::vector<std::pair<StageGradients*, Parameters*>> stages_;
  Buffer own_, gathered_, factor_;  // four words; of each rank four; a float
};

}  // namespace pipewright::exec::cuda
