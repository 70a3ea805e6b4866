// What a GPU costs, for exec/profile/profile.hpp: computations by training on the GPUs, each rank
// in the part of a GPU that it has in a run, with the GPU's own times; the loss, a copy between two
// ranks and the gap between two computations by events.
#pragma once

#include "exec/devices/cuda/queue.hpp"
#include "exec/profile/run.hpp"

namespace pipewright::exec::cuda {

/// For `ranks` ranks that train at once. `cuda` is of require_gpu(). Its functions throw RunError,
/// and MachineError if the GPUs cannot be divided so.
ProfileBackend profile_backend(const pipewright_cuda& cuda, Precision precision, int ranks);

}  // namespace pipewright::exec::cuda
