#include "exec/cuda/module.hpp"

#include <dlfcn.h>

#include "core/error.hpp"

namespace pipewright::exec::cuda {
namespace {

constexpr int kLeastCapability = 8;

/// 13000 is CUDA 13.0.
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

std::vector<std::filesystem::path> module_places() {
  std::vector<std::filesystem::path> places;
  std::error_code ignored;
  const auto command = std::filesystem::read_symlink("/proc/self/exe", ignored);
  if (!ignored) {
    places.push_back(command.parent_path() / "libpipewright_cuda.so");
    places.push_back(command.parent_path().parent_path() / "lib" / "pipewright" /
                     "libpipewright_cuda.so");
  }
  places.emplace_back(PIPEWRIGHT_CUDA_MODULE);
  return places;
}

const pipewright_cuda& load_module() {
  std::string why =
      "it was not built; install the CUDA toolkit, configure with -DPIPEWRIGHT_CUDA=ON and build "
      "again";
  for (const auto& place : module_places()) {
    if (!std::filesystem::exists(place)) continue;
    // Loaded for good: CUDA does not bear to be unloaded. A second time costs nothing.
    void* module = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) {
      why = std::string(dlerror()) + "; put CUDA's libraries where the loader finds them";
      continue;
    }
    const auto entry =
        reinterpret_cast<pipewright_cuda_entry_function>(dlsym(module, PIPEWRIGHT_CUDA_ENTRY));
    if (entry != nullptr && entry()->abi == PIPEWRIGHT_CUDA_ABI) return *entry();
    why = place.string() + " belongs to another version of Pipewright";
  }
  throw MachineError("the module libpipewright_cuda.so cannot be loaded: " + why);
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

void require(const pipewright_cuda& cuda, int status) {
  if (status != 0) throw RunError(cuda.why());
}

void* required(const pipewright_cuda& cuda, void* made) {
  if (made == nullptr) throw RunError(cuda.why());
  return made;
}

}  // namespace pipewright::exec::cuda
