// Training on the GPUs of this machine: a thread a rank, ranks shared out evenly over the GPUs, and
// several ranks on one GPU each in their own part of it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/timeline/gpu_work.hpp"
#include "exec/devices/cuda/device.hpp"
#include "exec/devices/cuda/sites.hpp"
#include "exec/runtime/runtime.hpp"
#include "exec/training/training_result.hpp"

namespace pipewright::exec::cuda {

/// What a training on GPUs adds, by rank. Empty if the last step did not end.
struct CudaResult : TrainingResult {
  /// When the host had enqueued all of the last step, in ns from its start.
  std::vector<std::int64_t> enqueued_ns;
  /// The most bytes of activations and messages, and the bytes of weights, gradients and the
  /// optimizer's state, without copies for other ranks; what the pools had of the GPU for these, at
  /// most, since blocks of one size do not serve as others; cuBLAS's workspace; what the
  /// transport's library takes (NCCL). The last three make up `peak_bytes`.
  struct Memory {
    std::int64_t peak_activations = 0, weights = 0, reserved = 0, workspace = 0, transport = 0;
  };
  std::vector<Memory> memory;
  /// Of the step that is shown, if it was asked for.
  std::optional<GpuWorkLog> work;
};

/// What moves the messages of a run instead of LocalTransport.
struct Messenger {
  Transport& transport;
  TransferSpans& times;
  /// By the rank's thread, when all ranks have rehearsed; may be empty: the ranks' GPUs never wait
  /// for one another while a host has still something to make.
  std::function<void(RankId rank, Device& device)> attach;
  /// Where the ranks are several processes: the GPU of this one's rank. Else they share all GPUs.
  std::optional<int> gpu = {};
  /// Needed where ranks that are processes divide layers.
  cpu::GroupOfProcesses group_of = {};
};

/// `training.verified_steps` steps are compared with a serial run on the CPU. Throws InputError if
/// the training does not fit the Program or no GPU does it, MachineError if the GPUs cannot be
/// divided so or what they do cannot be recorded, and what run() throws. `cuda` is of
/// require_gpu().
CudaResult run_on_cuda(const pipewright_cuda& cuda, const Program& program, const CostTable& costs,
                       const CudaTraining& training, const RunOptions& options = {});
CudaResult run_on_cuda(const pipewright_cuda& cuda, const Program& program, const CostTable& costs,
                       const CudaTraining& training, const RunOptions& options,
                       const Messenger& messenger);

}  // namespace pipewright::exec::cuda
