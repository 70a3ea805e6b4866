// Where ranks live: shared out evenly over the GPUs of this machine, and several on one GPU each in
// a part of its own.
#pragma once

#include <vector>

#include "exec/cuda/queue.hpp"

namespace pipewright::exec::cuda {

/// Which of `gpus` GPUs a rank lives on: neighbours together, as evenly as can be.
int gpu_of_rank(int rank, int ranks, int gpus);

/// Parts of GPUs. They go with it, so it has to outlive the Queues that are in them.
class Partitions {
 public:
  explicit Partitions(const pipewright_cuda& cuda) : cuda_(cuda) {}
  ~Partitions();
  Partitions(const Partitions&) = delete;
  Partitions& operator=(const Partitions&) = delete;

  /// `count` equal parts of a GPU; a single part is the whole GPU, and null. Throws as
  /// partition_sms() does.
  std::vector<void*> divide(int gpu, int count);

 private:
  const pipewright_cuda& cuda_;
  std::vector<void*> all_;
};

/// By rank. GPUs can then reach one another's memory. Throws MachineError where there is no GPU,
/// and what divide() throws.
std::vector<QueueSite> sites_of(const pipewright_cuda& cuda, int ranks, Precision precision,
                                Partitions& partitions);

}  // namespace pipewright::exec::cuda
