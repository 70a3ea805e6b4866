// How many streaming multiprocessors each of several ranks on one GPU gets, so that they compute at
// once and none takes another one's (green contexts, CUDA driver API). A pure function.
#pragma once

namespace pipewright::exec::cuda {

/// What a GPU can be divided into (pipewright_cuda_gpu).
struct SmFacts {
  int sms = 0;
  int least = 0;      // of a partition; 0: the driver has no partitions
  int alignment = 0;  // a partition's size is a multiple of this
};

/// SMs of each of `ranks` equal partitions: as many as fit, at least facts.least, a multiple of the
/// alignment. 0 for a single rank, which gets the GPU undivided. Throws InputError if the GPU has
/// not enough SMs for so many ranks, and MachineError if it cannot be divided at all.
int partition_sms(const SmFacts& facts, int ranks);

}  // namespace pipewright::exec::cuda
