#include "exec/transports/nccl/library.hpp"

#include <array>

#include "core/base/error.hpp"
#include "exec/base/built_places.hpp"
#include "exec/base/module_file.hpp"

namespace pipewright::exec::nccl {

const pipewright_nccl& load_nccl() {
  const auto& nccl = *static_cast<const pipewright_nccl*>(load(
      {.file = "libpipewright_cuda.so",
       .built_at = kBuiltCudaModule,
       .entry = PIPEWRIGHT_NCCL_ENTRY,
       .abi = PIPEWRIGHT_NCCL_ABI,
       .not_there = "it was not built; install the CUDA toolkit, configure with "
                    "-DPIPEWRIGHT_CUDA=ON and build again",
       .not_loaded = "put CUDA's libraries where the loader finds them",
       .no_entry = "it was built without NCCL; install that (pip: nvidia-nccl-cu13), configure "
                   "with -DNCCL_ROOT= where nccl.h is, and build again"}));
  std::array<char, 512> why{};
  if (nccl.begin(why.data(), why.size()) != 0)
    throw MachineError("NCCL cannot be loaded: " + std::string(why.data()) +
                       "; put libnccl.so.2 where the loader finds it (LD_LIBRARY_PATH)");
  return nccl;
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
