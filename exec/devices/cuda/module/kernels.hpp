// Between the two halves of libpipewright_cuda.so: exec/devices/cuda/module/runtime_module.cpp,
// which knows the CUDA runtime and cuBLAS, and exec/devices/cuda/module/kernels.cu, which the GPU's
// compiler reads.
#pragma once

#include <string>

#include "exec/devices/cuda/module_api.h"

namespace pipewright::exec::cuda {

/// All kernels, filled in: pipewright_cuda's `kernels`, `fast` and `bf16`.
pipewright_cuda_kernels gpu_kernels();
pipewright_cuda_kernels fast_gpu_kernels();
pipewright_cuda_kernels bf16_gpu_kernels();
/// Keeps the sentence for why(); 1.
int failed(const std::string& sentence);
/// The same of a call of CUDA; 0 if nothing has failed. `status` is a cudaError_t.
int noted(int status, const char* what);

}  // namespace pipewright::exec::cuda
