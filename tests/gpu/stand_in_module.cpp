// libpipewright_cuda.so without CUDA: the host's table (tests/support/host_cuda.hpp) behind the
// real module's entry. scripts/gpu-check --rehearse puts it beside the command, so that the very
// commands that a GPU will get are run without one. Its numbers are right and its times nobody's.
#include "exec/devices/cuda/module/nvtx_ranges.hpp"
#include "exec/devices/cuda/module_api.h"
#include "tests/support/host_cuda.hpp"

extern "C" __attribute__((visibility("default"))) const pipewright_cuda* pipewright_cuda_entry() {
  static const pipewright_cuda one_gpu = [] {
    pipewright_cuda table = pipewright::tests::host_cuda(pipewright::tests::HostOrder::Eager);
    table.gpus = [] { return 1; };
#if defined(PIPEWRIGHT_NVTX)
    pipewright::exec::cuda::offer_ranges(table);
#endif
    return table;
  }();
  return &one_gpu;
}
