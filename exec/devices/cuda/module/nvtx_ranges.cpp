// NVTX 3 is headers alone: its first call looks for the library of a profiler, which says by the
// environment where it is (NVTX_INJECTION64_PATH), and without one nothing is called after that.
// Knows nothing of CUDA, so tests build it without.
#include "exec/devices/cuda/module/nvtx_ranges.hpp"

#include <nvtx3/nvToolsExt.h>

namespace pipewright::exec::cuda {
namespace {

/// Null without a profiler. As any of its strings, it is the profiler's until the process ends.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t own = nvtxDomainCreateA("pipewright");
  return own;
}

int is_profiled() { return domain() != nullptr ? 1 : 0; }

void* range_name(const char* text) { return nvtxDomainRegisterStringA(domain(), text); }

void begin_range(void* name) {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered = static_cast<nvtxStringHandle_t>(name);
  static_cast<void>(nvtxDomainRangePushEx(domain(), &attributes));
}

void end_range() { static_cast<void>(nvtxDomainRangePop(domain())); }

}  // namespace

void offer_ranges(pipewright_cuda& table) {
  table.is_profiled = is_profiled;
  table.range_name = range_name;
  table.begin_range = begin_range;
  table.end_range = end_range;
}

}  // namespace pipewright::exec::cuda
