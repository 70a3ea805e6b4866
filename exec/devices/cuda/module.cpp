#include "exec/devices/cuda/module.hpp"

#include <cstdlib>

#include "core/base/error.hpp"
#include "exec/base/built_places.hpp"
#include "exec/base/module_file.hpp"

namespace pipewright::exec::cuda {
namespace {

constexpr int kLeastCapability = 8;

/// The driver reads it with the process's first call of CUDA. By default it has eight connections
/// to a GPU; streams that share one wait for each other's launches, and eight ranks on a GPU have
/// sixteen streams and more (cuda.h, green contexts). 32 is the most there are (CUDA C++
/// Programming Guide, environment variables). What the user has set stays.
void ask_for_connections() { setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); }

}  // namespace

std::string version_text(int version) {
  if (version == 0) return "none";
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

const pipewright_cuda& load_module() {
  ask_for_connections();
  return *static_cast<const pipewright_cuda*>(
      load({.file = "libpipewright_cuda.so",
            .built_at = kBuiltCudaModule,
            .entry = PIPEWRIGHT_CUDA_ENTRY,
            .abi = PIPEWRIGHT_CUDA_ABI,
            .not_there = "it was not built; install the CUDA toolkit, configure with "
                         "-DPIPEWRIGHT_CUDA=ON and build again",
            .not_loaded = "put CUDA's libraries where the loader finds them"}));
}

std::string why_no_gpu() {
  try {
    const pipewright_cuda& cuda = load_module();
    pipewright_cuda_versions versions{};
    cuda.versions(&versions);
    const int count = cuda.gpus();
    if (count < 0) {
      const std::string driver = versions.driver == 0
                                     ? "there is no NVIDIA driver"
                                     : "the driver knows CUDA " + version_text(versions.driver);
      return "the CUDA module (" + version_text(versions.runtime) + ") finds no GPU: " + driver +
             " (" + cuda.why() + ")";
    }
    for (int i = 0; i < count; ++i) {
      pipewright_cuda_gpu gpu{};
      if (cuda.gpu(i, &gpu) == 0 && gpu.major >= kLeastCapability) return "";
    }
    return count == 0 ? "the driver knows of no GPU"
                      : "none of the " + std::to_string(count) +
                            " GPUs has compute capability 8.0 (A100) or newer";
  } catch (const MachineError& error) {
    return error.what();
  }
}

const pipewright_cuda& require_gpu() {
  const std::string why = why_no_gpu();
  if (!why.empty()) throw MachineError(why);
  return load_module();
}

std::string why_no_cudnn(const pipewright_cuda& cuda) {
  if (cuda.attention_is_there == nullptr)
    return "the CUDA module was built without its headers (scripts/cuda-toolchain brings them); "
           "attention in 16 bits keeps squares of scores";
  if (cuda.attention_is_there() == 0) return "";
  return std::string(cuda.why()) +
         "; put libcudnn.so.9 where the loader finds it (LD_LIBRARY_PATH; pip: "
         "nvidia-cudnn-cu13), or attention in 16 bits keeps squares of scores";
}

std::string why_no_nvtx(const pipewright_cuda& cuda) {
  if (cuda.is_profiled != nullptr) return "";
  return "the CUDA module was built without its header (scripts/cuda-toolchain brings it; pip: "
         "nvidia-nvtx); Nsight shows kernels, and not which action launched them";
}

std::string why_no_cupti(const pipewright_cuda& cuda) {
  if (cuda.activities_are_there == nullptr)
    return "the CUDA module was built without CUPTI's header (scripts/cuda-toolchain brings it); "
           "runs cannot record kernels";
  if (cuda.activities_are_there() == 0) return "";
  return std::string(cuda.why()) +
         "; put CUPTI's library where the loader finds it (LD_LIBRARY_PATH; pip: "
         "nvidia-cuda-cupti), or runs cannot record kernels";
}

void require(const pipewright_cuda& cuda, int status) {
  if (status != 0) throw RunError(cuda.why());
}

void* required(const pipewright_cuda& cuda, void* made) {
  if (made == nullptr) throw RunError(cuda.why());
  return made;
}

}  // namespace pipewright::exec::cuda
