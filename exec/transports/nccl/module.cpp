// The NCCL half of libpipewright_cuda.so: the only file that knows nccl.h. See
// exec/transports/nccl/module_api.h. It takes NCCL's functions from the library by name, so that
// the module loads where NCCL is missing and takes the one that the machine has.
#include <dlfcn.h>
#include <nccl.h>

#include <cstdio>
#include <cstdlib>

#include "exec/transports/nccl/module_api.h"

static_assert(NCCL_UNIQUE_ID_BYTES == PIPEWRIGHT_NCCL_ID_BYTES, "the size of NCCL's unique id");
static_assert(static_cast<int>(ncclSuccess) == PIPEWRIGHT_NCCL_DONE, "NCCL's result codes");
static_assert(static_cast<int>(ncclInProgress) == PIPEWRIGHT_NCCL_IN_PROGRESS,
              "NCCL's result codes");

namespace {

// ncclConfig_t has commName from 2.27 on; communicators of several threads of a device are ordered
// by the host from 2.26 on (NCCL_LAUNCH_ORDER_IMPLICIT).
constexpr int kLeastVersion = NCCL_VERSION(2, 27, 0);

/// NCCL's functions, by their own names and types.
struct Library {
#define PIPEWRIGHT_NCCL_FUNCTION(name) decltype(&::name) name = nullptr
  PIPEWRIGHT_NCCL_FUNCTION(ncclGetVersion);
  PIPEWRIGHT_NCCL_FUNCTION(ncclGetErrorString);
  PIPEWRIGHT_NCCL_FUNCTION(ncclGetLastError);
  PIPEWRIGHT_NCCL_FUNCTION(ncclGetUniqueId);
  PIPEWRIGHT_NCCL_FUNCTION(ncclCommInitRankConfig);
  PIPEWRIGHT_NCCL_FUNCTION(ncclCommGetAsyncError);
  PIPEWRIGHT_NCCL_FUNCTION(ncclCommAbort);
  PIPEWRIGHT_NCCL_FUNCTION(ncclCommFinalize);
  PIPEWRIGHT_NCCL_FUNCTION(ncclCommDestroy);
  PIPEWRIGHT_NCCL_FUNCTION(ncclGroupStart);
  PIPEWRIGHT_NCCL_FUNCTION(ncclGroupEnd);
  PIPEWRIGHT_NCCL_FUNCTION(ncclSend);
  PIPEWRIGHT_NCCL_FUNCTION(ncclRecv);
  PIPEWRIGHT_NCCL_FUNCTION(ncclAllReduce);
  PIPEWRIGHT_NCCL_FUNCTION(ncclReduceScatter);
  PIPEWRIGHT_NCCL_FUNCTION(ncclAllGather);
#undef PIPEWRIGHT_NCCL_FUNCTION
};

// A process has one NCCL, hence globals.
Library nccl;
bool begun = false;

void* open_library(char* why, std::size_t why_size) {
  for (const char* name : {"libnccl.so.2", PIPEWRIGHT_NCCL_LIBRARY}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  std::snprintf(why, why_size, "%s", dlerror());
  return nullptr;
}

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* library) {
  return find(library, "ncclGetVersion", nccl.ncclGetVersion) &&
         find(library, "ncclGetErrorString", nccl.ncclGetErrorString) &&
         find(library, "ncclGetLastError", nccl.ncclGetLastError) &&
         find(library, "ncclGetUniqueId", nccl.ncclGetUniqueId) &&
         find(library, "ncclCommInitRankConfig", nccl.ncclCommInitRankConfig) &&
         find(library, "ncclCommGetAsyncError", nccl.ncclCommGetAsyncError) &&
         find(library, "ncclCommAbort", nccl.ncclCommAbort) &&
         find(library, "ncclCommFinalize", nccl.ncclCommFinalize) &&
         find(library, "ncclCommDestroy", nccl.ncclCommDestroy) &&
         find(library, "ncclGroupStart", nccl.ncclGroupStart) &&
         find(library, "ncclGroupEnd", nccl.ncclGroupEnd) &&
         find(library, "ncclSend", nccl.ncclSend) && find(library, "ncclRecv", nccl.ncclRecv) &&
         find(library, "ncclAllReduce", nccl.ncclAllReduce) &&
         find(library, "ncclReduceScatter", nccl.ncclReduceScatter) &&
         find(library, "ncclAllGather", nccl.ncclAllGather);
}

int version() {
  int number = 0;
  return nccl.ncclGetVersion(&number) == ncclSuccess ? number : 0;
}

/// NCCL reads these when it makes its first communicator. What the user has set stays. Launches of
/// several communicators of one GPU keep the host's order, and no buffer of a captured graph is
/// registered behind our back, which would take away its copy (docs/semantics.md §2.2).
void set_environment() {
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  setenv("NCCL_GRAPH_REGISTER", "0", 0);
}

int begin(char* why, std::size_t why_size) {
  if (begun) return 0;
  set_environment();
  void* library = open_library(why, why_size);
  if (library == nullptr) return 1;
  if (!find_all(library)) {
    std::snprintf(why, why_size, "this libnccl.so.2 lacks functions that NCCL 2.27 has");
    return 1;
  }
  if (version() < kLeastVersion) {
    std::snprintf(why, why_size, "this NCCL is %d, and 2.27 is the least that will do", version());
    return 1;
  }
  begun = true;
  return 0;
}

const char* text(int result) { return nccl.ncclGetErrorString(static_cast<ncclResult_t>(result)); }
const char* last_words() { return nccl.ncclGetLastError(nullptr); }

int unique_id(void* id) { return nccl.ncclGetUniqueId(static_cast<ncclUniqueId*>(id)); }

int join(void** communicator, int members, const void* id, int index, int most_ctas,
         const char* name) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 0;
  config.maxCTAs = most_ctas;
  config.commName = name;
  ncclComm_t made = nullptr;
  const ncclResult_t result = nccl.ncclCommInitRankConfig(
      &made, members, *static_cast<const ncclUniqueId*>(id), index, &config);
  *communicator = made;
  return result;
}

ncclComm_t comm(void* communicator) { return static_cast<ncclComm_t>(communicator); }
cudaStream_t on(void* stream) { return static_cast<cudaStream_t>(stream); }

int state(void* communicator) {
  ncclResult_t result = ncclSuccess;
  const ncclResult_t asked = nccl.ncclCommGetAsyncError(comm(communicator), &result);
  return asked == ncclSuccess ? result : asked;
}
int abort_communicator(void* communicator) { return nccl.ncclCommAbort(comm(communicator)); }
int finalize(void* communicator) { return nccl.ncclCommFinalize(comm(communicator)); }
int destroy(void* communicator) { return nccl.ncclCommDestroy(comm(communicator)); }
int group_start() { return nccl.ncclGroupStart(); }
int group_end() { return nccl.ncclGroupEnd(); }

ncclDataType_t type_of(int kind) {
  switch (kind) {
    case PIPEWRIGHT_NCCL_FLOAT32:
      return ncclFloat32;
    case PIPEWRIGHT_NCCL_FLOAT64:
      return ncclFloat64;
    case PIPEWRIGHT_NCCL_BF16:
      return ncclBfloat16;
    default:
      return ncclUint8;
  }
}

int send(const void* data, std::size_t count, int kind, int peer, void* communicator,
         void* stream) {
  return nccl.ncclSend(data, count, type_of(kind), peer, comm(communicator), on(stream));
}
int receive(void* data, std::size_t count, int kind, int peer, void* communicator, void* stream) {
  return nccl.ncclRecv(data, count, type_of(kind), peer, comm(communicator), on(stream));
}
int all_reduce(const void* from, void* to, std::size_t count, int kind, void* communicator,
               void* stream) {
  return nccl.ncclAllReduce(from, to, count, type_of(kind), ncclSum, comm(communicator),
                            on(stream));
}
int reduce_scatter(const void* from, void* to, std::size_t count, int kind, void* communicator,
                   void* stream) {
  return nccl.ncclReduceScatter(from, to, count, type_of(kind), ncclSum, comm(communicator),
                                on(stream));
}
int all_gather(const void* from, void* to, std::size_t count, int kind, void* communicator,
               void* stream) {
  return nccl.ncclAllGather(from, to, count, type_of(kind), comm(communicator), on(stream));
}

constexpr pipewright_nccl kTable = {PIPEWRIGHT_NCCL_ABI,
                                    begin,
                                    version,
                                    NCCL_VERSION_CODE,
                                    text,
                                    last_words,
                                    unique_id,
                                    join,
                                    state,
                                    abort_communicator,
                                    finalize,
                                    destroy,
                                    group_start,
                                    group_end,
                                    send,
                                    receive,
                                    all_reduce,
                                    reduce_scatter,
                                    all_gather};

}  // namespace

extern "C" __attribute__((visibility("default"))) const pipewright_nccl* pipewright_nccl_entry() {
  return &kTable;
}
