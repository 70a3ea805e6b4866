// CUPTI is opened when it is first asked for. It puts the GPU's times on the clock that it is given
// here, by a line between readings of both (cuptiActivityRegisterTimestampCallback()). Of what a
// thread is about it makes records before each call of the thread (external correlation); for
// graphs it says by callbacks which node was made, which is what the thread is about then, and
// which one was copied when the graph was made executable.
#include "exec/devices/cuda/module/cupti_activities.hpp"

#include <cupti.h>
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "exec/devices/cuda/module/activity_records.hpp"
#include "exec/devices/cuda/module/kernels.hpp"

namespace pipewright::exec::cuda {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
/// Beyond so many CUPTI has to do without, and says how many records that has cost.
constexpr int kMostBuffers = 256;
constexpr auto kOurs = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
/// Calls are recorded because the records of what a thread is about stand before theirs.
constexpr std::array kKinds = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                               CUPTI_ACTIVITY_KIND_MEMCPY,
                               CUPTI_ACTIVITY_KIND_MEMCPY2,
                               CUPTI_ACTIVITY_KIND_MEMSET,
                               CUPTI_ACTIVITY_KIND_RUNTIME,
                               CUPTI_ACTIVITY_KIND_DRIVER,
                               CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};
constexpr std::array kGraphEvents = {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
                                     CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED};

struct Cupti {
  Cupti() {
    library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const reason = dlerror();
      why = reason != nullptr ? reason : name + " cannot be opened";
      return;
    }
    find(version, "cuptiGetVersion");
    find(text_of, "cuptiGetResultString");
    find(register_clock, "cuptiActivityRegisterTimestampCallback");
    find(register_buffers, "cuptiActivityRegisterCallbacks");
    find(enable, "cuptiActivityEnable");
    find(disable, "cuptiActivityDisable");
    find(push, "cuptiActivityPushExternalCorrelationId");
    find(pop, "cuptiActivityPopExternalCorrelationId");
    find(flush, "cuptiActivityFlushAll");
    find(next, "cuptiActivityGetNextRecord");
    find(dropped, "cuptiActivityGetNumDroppedRecords");
    find(subscribe, "cuptiSubscribe");
    find(unsubscribe, "cuptiUnsubscribe");
    find(enable_callback, "cuptiEnableCallback");
    find(node_id, "cuptiGetGraphNodeId");
  }

  template <class Function>
  void find(Function*& function, const char* called) {
    function = reinterpret_cast<Function*>(dlsym(library, called));
    if (function == nullptr && why.empty()) why = name + " has no " + called;
  }

  const std::string name = "libcupti.so." + std::to_string(CUDA_VERSION / 1000);
  void* library = nullptr;
  std::string why;  // it cannot be used; empty: it can
  decltype(cuptiGetVersion)* version = nullptr;
  decltype(cuptiGetResultString)* text_of = nullptr;
  decltype(cuptiActivityRegisterTimestampCallback)* register_clock = nullptr;
  decltype(cuptiActivityRegisterCallbacks)* register_buffers = nullptr;
  decltype(cuptiActivityEnable)* enable = nullptr;
  decltype(cuptiActivityDisable)* disable = nullptr;
  decltype(cuptiActivityPushExternalCorrelationId)* push = nullptr;
  decltype(cuptiActivityPopExternalCorrelationId)* pop = nullptr;
  decltype(cuptiActivityFlushAll)* flush = nullptr;
  decltype(cuptiActivityGetNextRecord)* next = nullptr;
  decltype(cuptiActivityGetNumDroppedRecords)* dropped = nullptr;
  decltype(cuptiSubscribe)* subscribe = nullptr;
  decltype(cuptiUnsubscribe)* unsubscribe = nullptr;
  decltype(cuptiEnableCallback)* enable_callback = nullptr;
  decltype(cuptiGetGraphNodeId)* node_id = nullptr;
};

const Cupti& cupti() {
  static const Cupti functions;
  return functions;
}

int refused(CUptiResult status, const char* what) {
  if (status == CUPTI_SUCCESS) return 0;
  const char* reason = nullptr;
  static_cast<void>(cupti().text_of(status, &reason));
  return failed(std::string(what) + ": CUPTI says " +
                (reason != nullptr ? reason : std::to_string(static_cast<int>(status))));
}

/// CUPTI's threads may end after main().
ActivityRecords& records() {
  static auto* const one = new ActivityRecords;
  return *one;
}

thread_local AboutStack about;
std::atomic<std::int64_t (*)()> host_clock{nullptr};
std::atomic<int> buffers{0};
CUpti_SubscriberHandle subscriber = nullptr;

std::uint64_t CUPTIAPI timestamp() { return static_cast<std::uint64_t>(host_clock.load()()); }

// --- Records ---

/// Of any of the records of work; `kind` is PIPEWRIGHT_CUDA_KERNEL and so on.
template <class Record>
void take_work(const CUpti_Activity* record, int kind, std::int64_t bytes, const char* name) {
  const auto& r = *reinterpret_cast<const Record*>(record);
  records().note_work({.kind = kind,
                       .gpu = static_cast<int>(r.deviceId),
                       .context = r.contextId,
                       .stream = r.streamId,
                       .about = 0,
                       .start_ns = static_cast<std::int64_t>(r.start),
                       .end_ns = static_cast<std::int64_t>(r.end),
                       .bytes = bytes,
                       .name = name},
                      r.correlationId, r.graphNodeId);
}

template <class Record>
std::int64_t bytes_of(const CUpti_Activity* record) {
  return static_cast<std::int64_t>(reinterpret_cast<const Record*>(record)->bytes);
}

void take(const CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto& of = *reinterpret_cast<const CUpti_ActivityExternalCorrelation*>(record);
      if (of.externalKind == kOurs) records().note_call(of.correlationId, of.externalId);
      return;
    }
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return take_work<CUpti_ActivityKernel10>(
          record, PIPEWRIGHT_CUDA_KERNEL, 0,
          reinterpret_cast<const CUpti_ActivityKernel10*>(record)->name);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return take_work<CUpti_ActivityMemcpy6>(record, PIPEWRIGHT_CUDA_COPY,
                                              bytes_of<CUpti_ActivityMemcpy6>(record), nullptr);
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return take_work<CUpti_ActivityMemcpyPtoP4>(
          record, PIPEWRIGHT_CUDA_COPY, bytes_of<CUpti_ActivityMemcpyPtoP4>(record), nullptr);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return take_work<CUpti_ActivityMemset4>(record, PIPEWRIGHT_CUDA_CLEAR,
                                              bytes_of<CUpti_ActivityMemset4>(record), nullptr);
    default:
      return;
  }
}

/// By any of CUPTI's threads.
void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  *most_records = 0;
  *size = 0;
  *buffer = nullptr;
  if (buffers.fetch_add(1) >= kMostBuffers) {
    --buffers;
    return;
  }
  *buffer = static_cast<std::uint8_t*>(std::malloc(kBufferBytes));
  if (*buffer != nullptr) {
    *size = kBufferBytes;
  } else {
    --buffers;
  }
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                          std::size_t filled) {
  CUpti_Activity* record = nullptr;
  while (filled > 0 && cupti().next(buffer, filled, &record) == CUPTI_SUCCESS) take(record);
  std::free(buffer);
  --buffers;
}

/// By the thread that makes a graph, within the call that does.
void CUPTIAPI see_graph(void*, CUpti_CallbackDomain, CUpti_CallbackId event, const void* data) {
  const auto* const resource = static_cast<const CUpti_ResourceData*>(data);
  const auto* const graph = static_cast<const CUpti_GraphData*>(resource->resourceDescriptor);
  std::uint64_t node = 0, original = 0;
  if (graph == nullptr || cupti().node_id(graph->node, &node) != CUPTI_SUCCESS) return;
  if (event == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) {
    if (about.now() != 0) records().note_node(node, about.now());
  } else if (cupti().node_id(graph->originalNode, &original) == CUPTI_SUCCESS) {
    records().note_copied_node(node, original);
  }
}

// --- The table's functions ---

int are_there() { return cupti().why.empty() ? 0 : failed(cupti().why); }

int version() {
  std::uint32_t of = 0;
  return cupti().version(&of) == CUPTI_SUCCESS ? static_cast<int>(of) : 0;
}

int enable_all() {
  if (refused(cupti().register_clock(timestamp), "giving CUPTI the host's clock") != 0) return 1;
  if (refused(cupti().register_buffers(give_buffer, take_buffer), "recording activities") != 0)
    return 1;
  for (const auto event : kGraphEvents) {
    if (refused(cupti().enable_callback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, event),
                "looking at graphs") != 0)
      return 1;
  }
  for (const auto kind : kKinds) {
    if (refused(cupti().enable(kind), "recording activities") != 0) return 1;
  }
  return 0;
}

void stop() {
  for (const auto kind : kKinds) static_cast<void>(cupti().disable(kind));
  static_cast<void>(cupti().flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
  static_cast<void>(cupti().unsubscribe(subscriber));
  subscriber = nullptr;
}

int record(std::int64_t (*now)(), std::size_t most) {
  if (are_there() != 0) return 1;
  if (refused(cupti().subscribe(&subscriber, see_graph, nullptr),
              "recording activities (while no other profiler has attached)") != 0)
    return 1;
  host_clock = now;
  records().begin(most);
  if (enable_all() == 0) return 0;
  stop();
  return 1;
}

void begin_about(std::uint64_t what) {
  about.begin(what);
  static_cast<void>(cupti().push(kOurs, what));
}

void end_about() {
  about.end();
  static_cast<void>(cupti().pop(kOurs, nullptr));
}

int take_all(void (*taken)(void*, const pipewright_cuda_activity*), void* by,
             std::int64_t* dropped) {
  if (refused(cupti().flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "reading activities") != 0) return 1;
  std::size_t lost = 0;
  if (cupti().dropped(nullptr, 0, &lost) == CUPTI_SUCCESS)
    records().note_dropped(static_cast<std::int64_t>(lost));
  *dropped =
      records().take([&](const pipewright_cuda_activity& activity) { taken(by, &activity); });
  return 0;
}

}  // namespace

void offer_activities(pipewright_cuda& table) {
  table.activities_are_there = are_there;
  table.activities_version = version;
  table.record_activities = record;
  table.begin_about = begin_about;
  table.end_about = end_about;
  table.take_activities = take_all;
  table.stop_activities = stop;
}

}  // namespace pipewright::exec::cuda
