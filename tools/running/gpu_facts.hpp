// What this machine has for --device cuda and --transport nccl, and what is missing. Asks the
// modules (exec/devices/cuda/module.hpp, exec/transports/nccl/library.hpp); a machine without them
// is a sentence.
#pragma once

#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "exec/devices/cuda/module_api.h"

namespace pipewright::tools {

struct GpuFacts {
  std::string why_no_module;  // empty: libpipewright_cuda.so is loaded
  std::string why_no_gpu;     // empty: at least one GPU can be used
  std::string why_no_nccl;    // empty: NCCL is loaded
  std::string why_no_cudnn;   // empty: cuDNN is, and attention in 16 bits is its own
  std::string why_no_nvtx;    // empty: profilers see which action launched a kernel
  std::string why_no_cupti;   // empty: runs can record kernels
  pipewright_cuda_versions versions{};
  int nccl_version = 0, nccl_header_version = 0, cudnn_version = 0, cupti_version = 0;
  std::vector<pipewright_cuda_gpu> gpus;
};

/// Looks at the machine; a few milliseconds where there is no driver.
GpuFacts look_at_gpus();

/// "132 SMs, 140 GiB, compute capability 9.0, partitions of 8 SMs and more".
std::string gpu_text(const pipewright_cuda_gpu& gpu);
Json gpu_fields(const GpuFacts& facts);

}  // namespace pipewright::tools
