#include "exec/nccl/library.hpp"

#include <dlfcn.h>

#include <array>

#include "core/error.hpp"
#include "exec/cuda/module.hpp"

namespace pipewright::exec::nccl {

const pipewright_nccl& load_nccl() {
  cuda::load_module();  // says what is wrong with the module as a whole
  for (const auto& place : cuda::module_places()) {
    void* module = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) continue;
    const auto entry =
        reinterpret_cast<pipewright_nccl_entry_function>(dlsym(module, PIPEWRIGHT_NCCL_ENTRY));
    if (entry == nullptr)
      throw MachineError(
          "the module libpipewright_cuda.so was built without NCCL; install it (pip: "
          "nvidia-nccl-cu13), configure with -DNCCL_ROOT= where nccl.h is, and build again");
    if (entry()->abi != PIPEWRIGHT_NCCL_ABI)
      throw MachineError(place.string() + " belongs to another version of Pipewright");
    std::array<char, 512> why{};
    if (entry()->begin(why.data(), why.size()) != 0)
      throw MachineError("NCCL cannot be loaded: " + std::string(why.data()) +
                         "; put libnccl.so.2 where the loader finds it (LD_LIBRARY_PATH)");
    return *entry();
  }
  throw MachineError("the module libpipewright_cuda.so cannot be loaded");
}

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

void require(const pipewright_nccl& nccl, int result, const std::string& what) {
  if (result == PIPEWRIGHT_NCCL_DONE || result == PIPEWRIGHT_NCCL_IN_PROGRESS) return;
  const std::string words = nccl.last_words();
  throw RunError("NCCL: " + what + ": " + nccl.text(result) + (words.empty() ? "" : ": " + words));
}

}  // namespace pipewright::exec::nccl
