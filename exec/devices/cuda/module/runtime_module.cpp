// libpipewright_cuda.so: the file that knows the CUDA runtime and the driver. See
// exec/devices/cuda/module_api.h. The driver's own functions, for green contexts, are looked up
// when they are needed: linked to them, the module could not be loaded on a machine without a
// driver.
#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "exec/devices/cuda/module/cublas_products.hpp"
#include "exec/devices/cuda/module/cudnn_attention.hpp"
#include "exec/devices/cuda/module/cupti_activities.hpp"
#include "exec/devices/cuda/module/kernels.hpp"
#include "exec/devices/cuda/module/nvtx_ranges.hpp"

namespace pipewright::exec::cuda {
namespace {

/// The sentence of the thread's last failure.
thread_local std::string last_failure;

cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(void* event) { return static_cast<cudaEvent_t>(event); }

// --- The driver ---

/// A function of the driver, as of that version of CUDA; null where the driver has it not.
template <class Function>
Function driver_function(const char* name, unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found);
  static_cast<void>(cudaGetLastError());
  const bool there = status == cudaSuccess && found == cudaDriverEntryPointSuccess;
  return there ? reinterpret_cast<Function>(function) : nullptr;
}

/// What green contexts need: CUDA 12.4, and 12.5 for their streams.
struct Driver {
  decltype(&cuDeviceGet) device = driver_function<decltype(&cuDeviceGet)>("cuDeviceGet", 2000);
  decltype(&cuCtxSetCurrent) set_current =
      driver_function<decltype(&cuCtxSetCurrent)>("cuCtxSetCurrent", 4000);
  decltype(&cuDeviceGetDevResource) resource =
      driver_function<decltype(&cuDeviceGetDevResource)>("cuDeviceGetDevResource", 12040);
  decltype(&cuDevSmResourceSplitByCount) split =
      driver_function<decltype(&cuDevSmResourceSplitByCount)>("cuDevSmResourceSplitByCount", 12040);
  decltype(&cuDevResourceGenerateDesc) describe =
      driver_function<decltype(&cuDevResourceGenerateDesc)>("cuDevResourceGenerateDesc", 12040);
  decltype(&cuGreenCtxCreate) create =
      driver_function<decltype(&cuGreenCtxCreate)>("cuGreenCtxCreate", 12040);
  decltype(&cuGreenCtxDestroy) destroy =
      driver_function<decltype(&cuGreenCtxDestroy)>("cuGreenCtxDestroy", 12040);
  decltype(&cuCtxFromGreenCtx) context =
      driver_function<decltype(&cuCtxFromGreenCtx)>("cuCtxFromGreenCtx", 12040);
  decltype(&cuGreenCtxStreamCreate) stream =
      driver_function<decltype(&cuGreenCtxStreamCreate)>("cuGreenCtxStreamCreate", 12050);

  bool complete() const {
    return device != nullptr && set_current != nullptr && resource != nullptr && split != nullptr &&
           describe != nullptr && create != nullptr && destroy != nullptr && context != nullptr &&
           stream != nullptr;
  }
};

const Driver& driver() {
  static const Driver functions;
  return functions;
}

int refused(CUresult status, const char* what) {
  if (status == CUDA_SUCCESS) return 0;
  return failed(std::string(what) + ": the driver says error " +
                std::to_string(static_cast<int>(status)));
}

/// SMs of a GPU that nobody else's kernels use.
struct Partition {
  int gpu = 0;
  CUgreenCtx green = nullptr;
  CUcontext context = nullptr;
};

// --- What there is ---

const char* why() { return last_failure.c_str(); }

void versions(pipewright_cuda_versions* of) {
  *of = {};
  static_cast<void>(cudaRuntimeGetVersion(&of->runtime));
  static_cast<void>(cudaDriverGetVersion(&of->driver));
  int part[3] = {0, 0, 0};
  const libraryPropertyType parts[3] = {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
  for (int i = 0; i < 3; ++i) static_cast<void>(cublasGetProperty(parts[i], &part[i]));
  of->blas = part[0] * 10000 + part[1] * 100 + part[2];
}

int gpus() {
  int count = 0;
  return noted(cudaGetDeviceCount(&count), "looking for GPUs") == 0 ? count : -1;
}

int gpu(int index, pipewright_cuda_gpu* facts) {
  *facts = {};
  cudaDeviceProp properties{};
  if (noted(cudaGetDeviceProperties(&properties, index), "looking at a GPU") != 0) return 1;
  std::snprintf(facts->name, sizeof facts->name, "%s", properties.name);
  facts->sms = properties.multiProcessorCount;
  facts->major = properties.major;
  facts->minor = properties.minor;
  facts->memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  CUdevice device = 0;
  CUdevResource all{};
  const Driver& of = driver();
  if (of.complete() && of.device(&device, index) == CUDA_SUCCESS &&
      of.resource(device, &all, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS) {
    facts->least_partition_sms = static_cast<int>(all.sm.minSmPartitionSize);
    facts->partition_alignment_sms = static_cast<int>(all.sm.smCoscheduledAlignment);
  }
  return 0;
}

int memory(std::int64_t* free_bytes, std::int64_t* total_bytes) {
  std::size_t free_now = 0, total = 0;
  if (noted(cudaMemGetInfo(&free_now, &total), "asking for the GPU's memory") != 0) return 1;
  *free_bytes = static_cast<std::int64_t>(free_now);
  *total_bytes = static_cast<std::int64_t>(total);
  return 0;
}

// --- GPU and partition ---

void release_partition(void* what) {
  const std::unique_ptr<Partition> partition(static_cast<Partition*>(what));
  if (partition != nullptr) static_cast<void>(driver().destroy(partition->green));
}

int create_partition(CUdevice device, int gpu_index, CUdevResource& sms, void** made) {
  CUdevResourceDesc description = nullptr;
  if (refused(driver().describe(&description, &sms, 1), "describing a partition") != 0) return 1;
  auto partition = std::make_unique<Partition>();
  partition->gpu = gpu_index;
  if (refused(driver().create(&partition->green, description, device, CU_GREEN_CTX_DEFAULT_STREAM),
              "making a partition") != 0) {
    return 1;
  }
  *made = partition.get();
  const CUresult status = driver().context(&partition->context, partition->green);
  static_cast<void>(partition.release());
  if (refused(status, "entering a partition") == 0) return 0;
  release_partition(*made);
  *made = nullptr;
  return 1;
}

int split(int gpu_index, int sms, int count, void** partitions) {
  if (!driver().complete())
    return failed("this driver cannot divide a GPU (green contexts come with CUDA 12.5)");
  if (noted(cudaSetDevice(gpu_index), "entering a GPU") != 0) return 1;
  if (noted(cudaFree(nullptr), "entering a GPU") != 0) return 1;  // makes the primary context
  CUdevice device = 0;
  CUdevResource all{}, rest{};
  if (refused(driver().device(&device, gpu_index), "looking at a GPU") != 0) return 1;
  if (refused(driver().resource(device, &all, CU_DEV_RESOURCE_TYPE_SM), "counting SMs") != 0)
    return 1;
  std::vector<CUdevResource> groups(static_cast<std::size_t>(count));
  auto made = static_cast<unsigned>(count);
  if (refused(driver().split(groups.data(), &made, &all, &rest, 0, static_cast<unsigned>(sms)),
              "dividing a GPU") != 0) {
    return 1;
  }
  if (made < static_cast<unsigned>(count)) {
    return failed("the GPU can be divided into " + std::to_string(made) + " partitions of " +
                  std::to_string(sms) + " SMs, not into " + std::to_string(count));
  }
  std::fill_n(partitions, count, nullptr);
  for (int i = 0; i < count; ++i) {
    if (create_partition(device, gpu_index, groups[static_cast<std::size_t>(i)], &partitions[i]) ==
        0) {
      continue;
    }
    while (i-- > 0) release_partition(partitions[i]);
    return 1;
  }
  return 0;
}

int enter(int gpu_index, void* what) {
  const auto* partition = static_cast<const Partition*>(what);
  if (partition != nullptr)
    return refused(driver().set_current(partition->context), "entering a partition");
  return noted(cudaSetDevice(gpu_index), "entering a GPU");
}

int reach(int other_gpu) {
  int own = 0, can = 0;
  if (noted(cudaGetDevice(&own), "asking for the GPU") != 0) return 1;
  if (own == other_gpu) return 0;
  if (noted(cudaDeviceCanAccessPeer(&can, own, other_gpu), "looking at two GPUs") != 0) return 1;
  // Copies between them then go through the host; that is slower, and no failure.
  if (can == 0) return 0;
  const cudaError_t status = cudaDeviceEnablePeerAccess(other_gpu, 0);
  if (status != cudaErrorPeerAccessAlreadyEnabled) return noted(status, "reaching another GPU");
  static_cast<void>(cudaGetLastError());
  return 0;
}

// --- Memory ---

void* allocate(std::size_t bytes) {
  void* at = nullptr;
  const std::string what = "allocating " + std::to_string(bytes) + " bytes on the GPU";
  return noted(cudaMalloc(&at, bytes), what.c_str()) == 0 ? at : nullptr;
}
void release(void* at) { static_cast<void>(cudaFree(at)); }

void* allocate_pinned(std::size_t bytes) {
  void* at = nullptr;
  const int status =
      noted(cudaHostAlloc(&at, bytes, cudaHostAllocPortable), "allocating pinned memory");
  return status == 0 ? at : nullptr;
}
void release_pinned(void* at) { static_cast<void>(cudaFreeHost(at)); }

int copy(void* stream, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return 0;
  return noted(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream)), "a copy");
}
int clear(void* stream, void* at, std::size_t bytes) {
  if (bytes == 0) return 0;
  return noted(cudaMemsetAsync(at, 0, bytes, stream_of(stream)), "clearing memory");
}

// --- Streams and events ---

void* stream(void* what) {
  const auto* partition = static_cast<const Partition*>(what);
  if (partition != nullptr) {
    CUstream made = nullptr;
    const CUresult status = driver().stream(&made, partition->green, CU_STREAM_NON_BLOCKING, 0);
    return refused(status, "making a stream") == 0 ? made : nullptr;
  }
  cudaStream_t made = nullptr;
  const cudaError_t status = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
  return noted(status, "making a stream") == 0 ? made : nullptr;
}
void release_stream(void* which) { static_cast<void>(cudaStreamDestroy(stream_of(which))); }

void* event(int is_timed) {
  cudaEvent_t made = nullptr;
  const unsigned flags = is_timed != 0 ? cudaEventDefault : cudaEventDisableTiming;
  return noted(cudaEventCreateWithFlags(&made, flags), "making an event") == 0 ? made : nullptr;
}
void release_event(void* which) { static_cast<void>(cudaEventDestroy(event_of(which))); }

int record(void* which, void* on) {
  return noted(cudaEventRecord(event_of(which), stream_of(on)), "recording an event");
}
int mark(void* which, void* on) {
  cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
  if (noted(cudaStreamIsCapturing(stream_of(on), &state), "recording an event") != 0) return 1;
  const unsigned how =
      state == cudaStreamCaptureStatusNone ? cudaEventRecordDefault : cudaEventRecordExternal;
  return noted(cudaEventRecordWithFlags(event_of(which), stream_of(on), how), "recording an event");
}
int stream_waits(void* waiting, void* which) {
  return noted(cudaStreamWaitEvent(stream_of(waiting), event_of(which), 0), "waiting for an event");
}
int is_over(void* which) {
  const cudaError_t status = cudaEventQuery(event_of(which));
  if (status == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());  // that is no failure
    return 0;
  }
  return noted(status, "work on the GPU") == 0 ? 1 : -1;
}
int wait_for_event(void* which) {
  return noted(cudaEventSynchronize(event_of(which)), "work on the GPU");
}
int elapsed_ms(void* from, void* to, float* ms) {
  return noted(cudaEventElapsedTime(ms, event_of(from), event_of(to)), "reading an event's time");
}

// --- Graphs ---

/// Relaxed: the threads of several ranks put work on the streams, and another one may end it.
int begin_capture(void* on) {
  return noted(cudaStreamBeginCapture(stream_of(on), cudaStreamCaptureModeRelaxed),
               "capturing a graph");
}
void* end_capture(void* on) {
  cudaGraph_t graph = nullptr;
  if (noted(cudaStreamEndCapture(stream_of(on), &graph), "capturing a graph") != 0) return nullptr;
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  static_cast<void>(cudaGraphDestroy(graph));
  return noted(status, "making a graph") == 0 ? executable : nullptr;
}
int launch(void* graph, void* on) {
  return noted(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_of(on)),
               "launching a graph");
}
void release_graph(void* graph) {
  static_cast<void>(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)));
}

pipewright_cuda whole_table() {
  pipewright_cuda table{};
  table.abi = PIPEWRIGHT_CUDA_ABI;
  table.why = why;
  table.versions = versions;
  table.gpus = gpus;
  table.gpu = gpu;
  table.memory = memory;
  table.split = split;
  table.release_partition = release_partition;
  table.enter = enter;
  table.reach = reach;
  table.allocate = allocate;
  table.release = release;
  table.allocate_pinned = allocate_pinned;
  table.release_pinned = release_pinned;
  table.copy = copy;
  table.clear = clear;
  table.stream = stream;
  table.release_stream = release_stream;
  table.event = event;
  table.release_event = release_event;
  table.record = record;
  table.mark = mark;
  table.stream_waits = stream_waits;
  table.is_over = is_over;
  table.wait_for_event = wait_for_event;
  table.elapsed_ms = elapsed_ms;
  table.begin_capture = begin_capture;
  table.end_capture = end_capture;
  table.launch = launch;
  table.release_graph = release_graph;
  table.kernels = gpu_kernels();
  table.fast = fast_gpu_kernels();
  table.bf16 = bf16_gpu_kernels();
  offer_products(table);
#if defined(PIPEWRIGHT_CUDNN)
  offer_attention(table);
#endif
#if defined(PIPEWRIGHT_NVTX)
  offer_ranges(table);
#endif
#if defined(PIPEWRIGHT_CUPTI)
  offer_activities(table);
#endif
  return table;
}

}  // namespace

int failed(const std::string& sentence) {
  last_failure = sentence;
  return 1;
}

int noted(int status, const char* what) {
  const auto error = static_cast<cudaError_t>(status);
  if (error == cudaSuccess) return 0;
  static_cast<void>(cudaGetLastError());  // the next call is not to be blamed for it
  return failed(std::string(what) + ": " + cudaGetErrorString(error));
}

}  // namespace pipewright::exec::cuda

extern "C" __attribute__((visibility("default"))) const pipewright_cuda* pipewright_cuda_entry() {
  static const pipewright_cuda table = pipewright::exec::cuda::whole_table();
  return &table;
}
