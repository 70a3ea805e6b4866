// A profiler of ranges, as NVTX loads one by NVTX_INJECTION64_PATH: appends a line to the file
// PIPEWRIGHT_RANGES for each range that begins, "THREAD DEPTH DOMAIN: NAME".
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>

namespace {

std::mutex mutex;
std::deque<std::string> texts;  // domains and names; they stay where they are
std::FILE* file = nullptr;

std::string* kept(const char* text) {
  const std::scoped_lock lock(mutex);
  return &texts.emplace_back(text);
}

thread_local int depth = 0;

int number_of_thread() {
  static int threads = 0;
  thread_local const int own = threads++;  // under the mutex
  return own;
}

nvtxDomainHandle_t NVTX_API create(const char* name) {
  return reinterpret_cast<nvtxDomainHandle_t>(kept(name));
}

nvtxStringHandle_t NVTX_API keep(nvtxDomainHandle_t, const char* text) {
  return reinterpret_cast<nvtxStringHandle_t>(kept(text));
}

int NVTX_API begin(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  const auto* name = attributes->messageType == NVTX_MESSAGE_TYPE_REGISTERED
                         ? reinterpret_cast<const std::string*>(attributes->message.registered)
                         : nullptr;
  const std::scoped_lock lock(mutex);
  std::fprintf(file, "%d %d %s: %s\n", number_of_thread(), depth,
               reinterpret_cast<const std::string*>(domain)->c_str(),
               name == nullptr ? "" : name->c_str());
  std::fflush(file);
  return depth++;
}

int NVTX_API end(nvtxDomainHandle_t) { return --depth; }

template <class Function>
void hook(NvtxFunctionTable table, NvtxCallbackIdCore2 which, Function function) {
  *table[which] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const char* const path = std::getenv("PIPEWRIGHT_RANGES");
  file = path == nullptr ? nullptr : std::fopen(path, "a");
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (file == nullptr || callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) != 1) {
    return 0;
  }
  hook(table, NVTX_CBID_CORE2_DomainCreateA, create);
  hook(table, NVTX_CBID_CORE2_DomainRegisterStringA, keep);
  hook(table, NVTX_CBID_CORE2_DomainRangePushEx, begin);
  hook(table, NVTX_CBID_CORE2_DomainRangePop, end);
  return 1;
}
