// Training on the GPUs of this machine: a thread a rank, ranks shared out evenly over the GPUs, and
// several ranks on one GPU each in their own part of it.
#pragma once

#include <functional>
#include <optional>

#include "exec/devices/cuda/device.hpp"
#include "exec/devices/cuda/sites.hpp"
#include "exec/runtime/runtime.hpp"

namespace pipewright::exec::cuda {

/// What moves the messages of a run instead of LocalTransport.
struct Messenger {
  Transport& transport;
  TransferSpans& times;
  std::function<void(RankId rank, Device& device)> attach;  // by the rank's thread; may be empty
  /// Where the ranks are several processes: the GPU of this one's rank. Else they share all GPUs.
  std::optional<int> gpu = {};
};

/// `training.verified_steps` steps are compared with a serial run on the CPU. Throws InputError if
/// the training does not fit the Program or no GPU does it, MachineError if the GPUs cannot be
/// divided so, and what run() throws. `cuda` is of require_gpu().
RunResult run_on_cuda(const pipewright_cuda& cuda, const Program& program, const CostTable& costs,
                      const CudaTraining& training, const RunOptions& options = {});
RunResult run_on_cuda(const pipewright_cuda& cuda, const Program& program, const CostTable& costs,
                      const CudaTraining& training, const RunOptions& options,
                      const Messenger& messenger);

}  // namespace pipewright::exec::cuda
