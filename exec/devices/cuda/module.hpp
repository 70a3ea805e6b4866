// Finding and loading libpipewright_cuda.so, and what it says of this machine. The module stays
// loaded: its table is valid until the process ends. Any thread.
#pragma once

#include <string>

#include "exec/devices/cuda/module_api.h"

namespace pipewright::exec::cuda {

/// "13.0" for 13000; "none" for 0.
std::string version_text(int version);

/// Throws MachineError that says what is missing. Does not ask for a GPU. The first call has to
/// come before the process's other threads read its environment: it sets
/// CUDA_DEVICE_MAX_CONNECTIONS.
const pipewright_cuda& load_module();

/// Empty if there is the module, a driver that fits and at least one GPU of compute capability 8.0
/// or newer; else a sentence that says what is missing.
std::string why_no_gpu();

/// The same table, if there is a GPU. Throws MachineError with that sentence.
const pipewright_cuda& require_gpu();

/// Empty if the module finds cuDNN; else a sentence that says what is missing, and what is done
/// without it.
std::string why_no_cudnn(const pipewright_cuda& cuda);

/// Empty if the module tells profilers what it does; else a sentence that says what is missing.
std::string why_no_nvtx(const pipewright_cuda& cuda);

/// Empty if the module can record what GPUs do, kernel by kernel; else a sentence that says what is
/// missing.
std::string why_no_cupti(const pipewright_cuda& cuda);

/// Throws RunError with the table's own sentence if a call's status is not 0.
void require(const pipewright_cuda& cuda, int status);
/// The pointer itself; throws RunError if it is null.
void* required(const pipewright_cuda& cuda, void* made);

}  // namespace pipewright::exec::cuda
