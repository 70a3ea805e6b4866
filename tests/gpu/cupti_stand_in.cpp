// libcupti.so without a GPU: of CUPTI's functions those that the module takes
// (exec/devices/cuda/module/cupti_activities.cpp), with records as its header has them. What is put
// on the stand-in's streams it is told by two functions of its own. It delivers by threads of its
// own, in buffers that it asks for, and has a clock of its own.
#include <cupti.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "exec/devices/cuda/module_api.h"

namespace {

using Bytes = std::vector<std::uint8_t>;

std::mutex mutex;  // guards what follows
std::vector<Bytes> waiting;
std::set<CUpti_ActivityKind> kinds;
std::size_t not_delivered = 0;
std::uint32_t calls = 0;
std::uint64_t nodes = 0;
std::map<std::uint64_t, std::uint64_t> node_of;  // by number of what was captured

CUpti_BuffersCallbackRequestFunc request = nullptr;
CUpti_BuffersCallbackCompleteFunc complete = nullptr;
CUpti_TimestampCallbackFunc timestamp = nullptr;
CUpti_CallbackFunc callback = nullptr;
std::set<CUpti_CallbackId> callbacks;
thread_local std::vector<std::uint64_t> external;

/// Behind the host's by a quarter of an hour.
constexpr std::uint64_t kBehindNs = 900'000'000'000;
std::uint64_t own_clock() {
  using namespace std::chrono;
  const auto now = duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
  return static_cast<std::uint64_t>(now) - kBehindNs;
}

std::size_t size_of(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
      return sizeof(CUpti_ActivityExternalCorrelation);
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(CUpti_ActivityMemset4);
    default:
      return sizeof(CUpti_ActivityAPI);
  }
}

/// By whoever holds the mutex. Kinds that nobody has enabled are not recorded.
template <class Record>
void keep(const Record& record) {
  if (!kinds.contains(record.kind)) return;
  Bytes bytes(sizeof record);
  std::memcpy(bytes.data(), &record, sizeof record);
  waiting.push_back(std::move(bytes));
}

/// Of the kinds that have times, those of the host's clock.
void shift(Bytes& bytes, std::uint64_t ahead) {
  const auto move = [&](auto* record) {
    record->start += ahead;
    record->end += ahead;
  };
  auto* const record = reinterpret_cast<CUpti_Activity*>(bytes.data());
  if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
    move(reinterpret_cast<CUpti_ActivityKernel10*>(record));
  if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY)
    move(reinterpret_cast<CUpti_ActivityMemcpy6*>(record));
  if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET)
    move(reinterpret_cast<CUpti_ActivityMemset4*>(record));
}

void deliver(std::vector<Bytes> records) {
  const std::uint64_t before = own_clock(), host = timestamp(), after = own_clock();
  const std::uint64_t ahead = host - before - (after - before) / 2;
  constexpr std::size_t kRecordsOfBuffer = 16;
  for (std::size_t at = 0; at < records.size(); at += kRecordsOfBuffer) {
    std::uint8_t* buffer = nullptr;
    std::size_t size = 0, most = 0, filled = 0;
    request(&buffer, &size, &most);
    for (std::size_t i = at; i < std::min(records.size(), at + kRecordsOfBuffer); ++i) {
      if (buffer == nullptr || filled + records[i].size() > size) {
        const std::scoped_lock lock(mutex);
        ++not_delivered;
        continue;
      }
      shift(records[i], ahead);
      std::memcpy(buffer + filled, records[i].data(), records[i].size());
      filled += records[i].size();
    }
    if (buffer != nullptr) complete(nullptr, 0, buffer, size, filled);
  }
}

/// By a thread that is nobody's.
void deliver_all(std::size_t at_least) {
  std::vector<Bytes> records;
  {
    const std::scoped_lock lock(mutex);
    if (waiting.size() < at_least) return;
    records.swap(waiting);
  }
  std::thread(deliver, std::move(records)).join();
}

void tell_of_node(CUpti_CallbackId event, std::uint64_t node, std::uint64_t original) {
  if (callback == nullptr || !callbacks.contains(event)) return;
  CUpti_GraphData graph{};
  graph.node = reinterpret_cast<CUgraphNode>(node);
  graph.originalNode = reinterpret_cast<CUgraphNode>(original);
  CUpti_ResourceData resource{};
  resource.resourceDescriptor = &graph;
  callback(nullptr, CUPTI_CB_DOMAIN_RESOURCE, event, &resource);
}

template <class Record>
Record filled(CUpti_ActivityKind kind, std::uint32_t call, std::uint64_t node,
              const pipewright_cuda_activity& work) {
  Record record{};
  record.kind = kind;
  record.start = static_cast<std::uint64_t>(work.start_ns) - kBehindNs;
  record.end = static_cast<std::uint64_t>(work.end_ns) - kBehindNs;
  record.deviceId = static_cast<std::uint32_t>(work.gpu);
  record.contextId = work.context;
  record.streamId = work.stream;
  record.correlationId = call;
  record.graphNodeId = node;
  return record;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

// --- For the stand-in's streams ---

EXPORTED std::uint64_t pipewright_stand_in_put(int is_captured) {
  std::unique_lock lock(mutex);
  const std::uint32_t call = ++calls;
  if (is_captured != 0) {
    const std::uint64_t node = nodes += 2;
    node_of[call] = node + 1;
    lock.unlock();
    tell_of_node(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, node, 0);
    tell_of_node(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, node + 1, node);
    return call;
  }
  if (!external.empty()) {
    CUpti_ActivityExternalCorrelation of{};
    of.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    of.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
    of.externalId = external.back();
    of.correlationId = call;
    keep(of);
  }
  CUpti_ActivityAPI api{};
  api.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  api.correlationId = call;
  keep(api);
  return call;
}

EXPORTED void pipewright_stand_in_done(std::uint64_t number, const pipewright_cuda_activity* work) {
  {
    const std::scoped_lock lock(mutex);
    const auto found = node_of.find(number);
    const std::uint64_t node = found == node_of.end() ? 0 : found->second;
    const auto call = static_cast<std::uint32_t>(number);
    if (work->kind == PIPEWRIGHT_CUDA_KERNEL) {
      auto record =
          filled<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, call, node, *work);
      record.name = work->name;
      keep(record);
    } else if (work->kind == PIPEWRIGHT_CUDA_COPY) {
      auto record = filled<CUpti_ActivityMemcpy6>(CUPTI_ACTIVITY_KIND_MEMCPY, call, node, *work);
      record.bytes = static_cast<std::uint64_t>(work->bytes);
      keep(record);
    } else {
      auto record = filled<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET, call, node, *work);
      record.bytes = static_cast<std::uint64_t>(work->bytes);
      keep(record);
    }
  }
  deliver_all(100);
}

// --- CUPTI's ---

EXPORTED CUptiResult cuptiGetVersion(std::uint32_t* version) {
  *version = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}
EXPORTED CUptiResult cuptiGetResultString(CUptiResult, const char** text) {
  *text = "another one is there";
  return CUPTI_SUCCESS;
}
EXPORTED CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock) {
  timestamp = clock;
  return CUPTI_SUCCESS;
}
EXPORTED CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc ask,
                                                    CUpti_BuffersCallbackCompleteFunc give) {
  request = ask;
  complete = give;
  return CUPTI_SUCCESS;
}
EXPORTED CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  const std::scoped_lock lock(mutex);
  kinds.insert(kind);
  return CUPTI_SUCCESS;
}
EXPORTED CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  const std::scoped_lock lock(mutex);
  kinds.erase(kind);
  return CUPTI_SUCCESS;
}
EXPORTED CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind,
                                                            std::uint64_t id) {
  external.push_back(id);
  return CUPTI_SUCCESS;
}
EXPORTED CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind,
                                                           std::uint64_t*) {
  if (external.empty()) return CUPTI_ERROR_QUEUE_EMPTY;
  external.pop_back();
  return CUPTI_SUCCESS;
}
EXPORTED CUptiResult cuptiActivityFlushAll(std::uint32_t) {
  deliver_all(1);
  return CUPTI_SUCCESS;
}
EXPORTED CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t filled,
                                                CUpti_Activity** record) {
  auto* const at = *record == nullptr
                       ? buffer
                       : reinterpret_cast<std::uint8_t*>(*record) + size_of((*record)->kind);
  if (at >= buffer + filled) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(at);
  return CUPTI_SUCCESS;
}
EXPORTED CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t,
                                                       std::size_t* dropped) {
  const std::scoped_lock lock(mutex);
  *dropped = std::exchange(not_delivered, 0);
  return CUPTI_SUCCESS;
}
EXPORTED CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc call,
                                    void*) {
  if (callback != nullptr || std::getenv("PIPEWRIGHT_OTHER_PROFILER") != nullptr)
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  callback = call;
  *subscriber = nullptr;
  return CUPTI_SUCCESS;
}
EXPORTED CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  callback = nullptr;
  return CUPTI_SUCCESS;
}
EXPORTED CUptiResult cuptiEnableCallback(std::uint32_t, CUpti_SubscriberHandle,
                                         CUpti_CallbackDomain, CUpti_CallbackId event) {
  callbacks.insert(event);
  return CUPTI_SUCCESS;
}
EXPORTED CUptiResult cuptiGetGraphNodeId(CUgraphNode node, std::uint64_t* id) {
  *id = reinterpret_cast<std::uint64_t>(node);
  return CUPTI_SUCCESS;
}
