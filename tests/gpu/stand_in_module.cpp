// libpipewright_cuda.so without CUDA: the host's table (tests/support/host_cuda.hpp) behind the
// real module's entry. scripts/gpu-check --rehearse puts it beside the command, so that the very
// commands that a GPU will get are run without one. Its numbers are right and its times nobody's.
#include <dlfcn.h>

#include "exec/devices/cuda/module/cupti_activities.hpp"
#include "exec/devices/cuda/module/kernels.hpp"
#include "exec/devices/cuda/module/nvtx_ranges.hpp"
#include "exec/devices/cuda/module_api.h"
#include "tests/support/host_cuda.hpp"
#include "tests/support/host_streams.hpp"

#if defined(PIPEWRIGHT_CUPTI)
namespace pipewright::exec::cuda {
int failed(const std::string& sentence) { return tests::host::failed(sentence); }
}  // namespace pipewright::exec::cuda

namespace {

/// The real module's part, on a stand-in for CUPTI's library (tests/gpu/cupti_stand_in.cpp) that
/// lies beside this one, which streams tell what they do.
void offer_cupti(pipewright_cuda& table) {
  void* const library = dlopen("libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  pipewright::tests::host::Watcher watcher;
  watcher.put = reinterpret_cast<decltype(watcher.put)>(dlsym(library, "pipewright_stand_in_put"));
  watcher.done =
      reinterpret_cast<decltype(watcher.done)>(dlsym(library, "pipewright_stand_in_done"));
  if (watcher.put == nullptr || watcher.done == nullptr) return;
  pipewright::tests::host::watch_with(watcher);
  pipewright::exec::cuda::offer_activities(table);
}

}  // namespace
#endif

extern "C" __attribute__((visibility("default"))) const pipewright_cuda* pipewright_cuda_entry() {
  static const pipewright_cuda one_gpu = [] {
    pipewright_cuda table = pipewright::tests::host_cuda(pipewright::tests::HostOrder::Eager);
    table.gpus = [] { return 1; };
#if defined(PIPEWRIGHT_NVTX)
    pipewright::exec::cuda::offer_ranges(table);
#endif
#if defined(PIPEWRIGHT_CUPTI)
    offer_cupti(table);
#endif
    return table;
  }();
  return &one_gpu;
}
