// Where ranks live: shared out evenly over the GPUs of this machine, and several on one GPU each in
// a part of its own.
#pragma once

#include <vector>

#include "exec/devices/cuda/queue.hpp"

namespace pipewright::exec::cuda {

/// Which of `gpus` GPUs a rank lives on: neighbours together, as evenly as can be.
int gpu_of_rank(int rank, int ranks, int gpus);

/// A GPU in equal parts, by part; a single one is the whole GPU, and null.
struct Division {
  int sms = 0;  // of each; 0: all
  std::vector<void*> parts;
};

/// Parts of GPUs. They go with it, so it has to outlive the Queues that are in them.
class Partitions {
 public:
  explicit Partitions(const pipewright_cuda& cuda) : cuda_(cuda) {}
  ~Partitions();
  Partitions(const Partitions&) = delete;
  Partitions& operator=(const Partitions&) = delete;

  /// As large as the GPU gives them: its clusters of SMs may allow fewer equal parts of a size than
  /// its number of SMs does, and then they are smaller. Throws InputError if the GPU has not enough
  /// SMs for so many parts, MachineError if it cannot be divided at all, and RunError with the
  /// driver's words if it gives none.
  Division divide(int gpu, int count);

 private:
  const pipewright_cuda& cuda_;
  std::vector<void*> all_;
};

/// By rank. GPUs can then reach one another's memory. Throws MachineError where there is no GPU,
/// and what divide() throws.
std::vector<QueueSite> sites_of(const pipewright_cuda& cuda, int ranks, Precision precision,
                                Partitions& partitions);

}  // namespace pipewright::exec::cuda
