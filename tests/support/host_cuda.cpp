#include "tests/support/host_cuda.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <typeinfo>
#include <vector>

#include "exec/devices/cuda/column_major.hpp"
#include "exec/devices/cuda/kernel_table.hpp"
#include "exec/devices/cuda/launch_shape.hpp"
#include "exec/devices/cuda/product_tiles.hpp"
#include "tests/support/host_attention.hpp"
#include "tests/support/host_lanes.hpp"
#include "tests/support/host_streams.hpp"

namespace pipewright::tests {
namespace {

using exec::cuda::Bfloat16;
using exec::cuda::kLanes;
using exec::cuda::kWarp;
using exec::cuda::kWideLanes;

// --- Kernels ---

/// A block's threads one after another, phase by phase.
void multiply_tile(const pipewright_cuda_gemm& g, int x, int y, int z) {
  exec::cuda::Pieces pieces{};
  std::vector<exec::cuda::TileThread> threads;
  threads.reserve(exec::cuda::kProductThreads);
  for (int t = 0; t < exec::cuda::kProductThreads; ++t) threads.emplace_back(g, x, y, z, t);
  for (int k = 0; k < g.k; k += exec::cuda::kDepth) {
    for (const auto& thread : threads) thread.load(pieces, k);
    for (auto& thread : threads) thread.extend(pieces, k);
  }
  for (const auto& thread : threads) thread.store();
}

float number_at(const void* array, std::ptrdiff_t place, bool is_bf16) {
  if (is_bf16) return static_cast<const Bfloat16*>(array)[place];
  return static_cast<const float*>(array)[place];
}

/// Numbers that lie so far apart.
template <class Number>
struct Line {
  const Number* first;
  std::ptrdiff_t step;
};

/// ThreadSanitizer need not look: streams do their work one at a time, behind their lock.
template <class Number>
__attribute__((no_sanitize("thread"))) double sum_of_products(Line<Number> x, Line<Number> y,
                                                              int count) {
  double sum = 0;
  for (int k = 0; k < count; ++k, x.first += x.step, y.first += y.step)
    sum += static_cast<double>(static_cast<float>(*x.first)) *
           static_cast<double>(static_cast<float>(*y.first));
  return sum;
}

template <class Number>
Line<Number> row_of(const exec::cuda::BlasFactor& f, int matrix, int row) {
  const auto* const numbers = static_cast<const Number*>(f.data) + matrix * f.step;
  return {numbers + row * (f.transposed ? f.leading : 1), f.transposed ? 1 : f.leading};
}
template <class Number>
Line<Number> column_of(const exec::cuda::BlasFactor& f, int matrix, int column) {
  const auto* const numbers = static_cast<const Number*>(f.data) + matrix * f.step;
  return {numbers + column * (f.transposed ? 1 : f.leading), f.transposed ? f.leading : 1};
}

/// A column-major product, plainly, as cuBLAS defines it.
template <class Number>
void multiply(const exec::cuda::BlasCall& call, const void* bias) {
  for (int matrix = 0; matrix < call.count; ++matrix) {
    for (int j = 0; j < call.n; ++j) {
      const Line<Number> column = column_of<Number>(call.second, matrix, j);
      for (int i = 0; i < call.m; ++i) {
        double sum = sum_of_products(row_of<Number>(call.first, matrix, i), column, call.k);
        const std::ptrdiff_t to =
            matrix * call.result_step + static_cast<std::ptrdiff_t>(j) * call.result_leading + i;
        const bool narrow = call.result_is_bf16;
        if (bias != nullptr) sum += static_cast<double>(number_at(bias, i, call.factors_are_bf16));
        const float before = call.beta == 0.0F ? 0.0F : number_at(call.result, to, narrow);
        const auto after = static_cast<float>(static_cast<double>(call.alpha) * sum +
                                              static_cast<double>(call.beta * before));
        if (narrow)
          static_cast<Bfloat16*>(call.result)[to] = after;
        else
          static_cast<float*>(call.result)[to] = after;
      }
    }
  }
}

void multiply_as_blas(const exec::cuda::BlasCall& call, const void* bias) {
  call.factors_are_bf16 ? multiply<Bfloat16>(call, bias) : multiply<float>(call, bias);
}

/// Of the second factor of a product.
void sum_columns(const pipewright_cuda_gemm& g, bool is_bf16) {
  for (int column = 0; column < g.n; ++column) {
    double sum = 0;
    for (int row = 0; row < g.k; ++row) {
      sum += static_cast<double>(
          number_at(g.b.data, static_cast<std::ptrdiff_t>(row) * g.b.stride + column, is_bf16));
    }
    g.column_sums[column] = static_cast<float>(sum);
  }
}

/// By the definition of the chain: of small products a tile would be mostly empty.
void multiply_small(const pipewright_cuda_gemm& g, int z) {
  const exec::cuda::BatchMatrix a(g.a, z / g.inner, z % g.inner), b(g.b, z / g.inner, z % g.inner);
  float* const c = exec::cuda::result_of(g, z / g.inner, z % g.inner);
  for (int i = 0; i < g.m; ++i) {
    for (int j = 0; j < g.n; ++j) {
      float& to = c[static_cast<std::ptrdiff_t>(i) * g.c_stride + j];
      float chain = g.beta == 0.0F ? 0.0F : to;
      for (int k = 0; k < g.k; ++k) chain = exec::cuda::fused(a.at(i, k), b.at(k, j), chain);
      to = g.alpha * chain;
    }
  }
}

void multiply(const pipewright_cuda_gemm& g, int z) {
  constexpr int kSmall = 32;
  if (g.m < kSmall || g.n < kSmall) return multiply_small(g, z);
  for (int y = 0; y < exec::cuda::tiles_of(g.m); ++y) {
    for (int x = 0; x < exec::cuda::tiles_of(g.n); ++x) multiply_tile(g, x, y, z);
  }
}

/// Type names are those of symbols but for what stands in front.
host::Label kernel(const std::type_info& of) { return {.name = of.name()}; }

struct Launcher {
  template <class F>
  static int elements(void* stream, std::size_t n, F f) {
    return host::put(
        stream,
        [n, f] {
          std::size_t i = 0;
          if constexpr (constexpr std::size_t kPack = exec::cuda::pack_of<F>(); kPack > 1) {
            for (; i + kPack <= n; i += kPack) f.pack(i);
          }
          for (; i < n; ++i) f(i);
        },
        kernel(typeid(F)));
  }
  template <class F>
  static int rows(void* stream, std::size_t n, F f) {
    return host::put(
        stream,
        [n, f] {
          for (std::size_t row = 0; row < n; ++row) f(HostLanes<kLanes, kLanes, false>{}, row);
        },
        kernel(typeid(F)));
  }
  template <class F>
  static int wide_rows(void* stream, std::size_t n, F f) {
    return host::put(
        stream,
        [n, f] {
          for (std::size_t row = 0; row < n; ++row) f(HostLanes<kWideLanes, kWarp, true>{}, row);
        },
        kernel(typeid(F)));
  }
  template <int packs, class F>
  static int held_rows(void* stream, std::size_t n, int lanes, F f) {
    return host::put(
        stream,
        [n, lanes, f] {
          for (std::size_t row = 0; row < n; ++row) f(HoldingHostLanes<packs>{lanes}, row);
        },
        kernel(typeid(F)));
  }
  template <class F>
  static int tiles(void* stream, F f) {
    return host::put(
        stream, [f] { add_columns(f); }, kernel(typeid(F)));
  }
  static int product(void* stream, const pipewright_cuda_gemm& g) {
    return host::put(stream,
                     [g] {
                       for (int z = 0; z < g.outer * g.inner; ++z) multiply(g, z);
                     },
                     {.name = "canonical_gemm"});
  }
  static int delay(void* stream, std::int64_t) {
    return host::put(stream, [] {}, {.name = "delay"});
  }
};

// --- The rest of the table ---

void versions(pipewright_cuda_versions* of) { *of = {13000, 13000, 130100}; }
int gpus() { return 2; }
int gpu(int, pipewright_cuda_gpu* facts) {
  *facts = {"the host", 132, 9, 0, std::int64_t{1} << 34, 8, 8};
  return 0;
}
/// What several threads share. Never goes: threads may end after main().
struct Machine {
  std::mutex mutex;
  std::map<void*, std::thread::id> current;  // the thread that has entered a partition
  struct Taken {
    int gpu = 0;
    std::int64_t bytes = 0;
  };
  std::map<void*, Taken> taken;
  std::map<int, std::int64_t> bytes;  // by GPU
  std::int64_t allocations = 0;
  std::vector<int> blas_sms;
};

Machine& machine() {
  static auto* const one = new Machine;
  return *one;
}

/// Where the thread is. It leaves its partition when it ends.
struct Place {
  Place() = default;
  ~Place() { leave(); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  void leave() {
    const std::scoped_lock lock(machine().mutex);
    machine().current.erase(partition);
    partition = nullptr;
  }

  int gpu = 0;
  void* partition = nullptr;
};
thread_local Place here;

int enter(int gpu, void* partition) {
  if (here.partition != partition) here.leave();
  here.gpu = gpu;
  if (partition == nullptr) return 0;
  const std::scoped_lock lock(machine().mutex);
  const auto [resident, is_new] = machine().current.emplace(partition, std::this_thread::get_id());
  if (!is_new && resident->second != std::this_thread::get_id())
    return host::failed("a thread enters a partition that is current to another one");
  here.partition = partition;
  return 0;
}

int memory(std::int64_t* free_bytes, std::int64_t* total_bytes) {
  const std::scoped_lock lock(machine().mutex);
  *total_bytes = std::int64_t{1} << 34;
  *free_bytes = *total_bytes - machine().bytes[here.gpu];
  return 0;
}

int split(int, int, int count, void** partitions) {
  for (int i = 0; i < count; ++i) partitions[i] = new int(i);
  return 0;
}
void release_partition(void* partition) {
  {
    const std::scoped_lock lock(machine().mutex);
    machine().current.erase(partition);
  }
  delete static_cast<int*>(partition);
}

/// What cudaMalloc() promises of the beginning of memory.
constexpr std::align_val_t kBoundary{256};

void* allocate_pinned(std::size_t bytes) {
  void* at = ::operator new(bytes, kBoundary);
  std::memset(at, 0xFF, bytes);
  return at;
}
void release_pinned(void* at) { ::operator delete(at, kBoundary); }

void* allocate(std::size_t bytes) {
  void* const at = allocate_pinned(bytes);
  const std::scoped_lock lock(machine().mutex);
  machine().taken[at] = {here.gpu, static_cast<std::int64_t>(bytes)};
  machine().bytes[here.gpu] += static_cast<std::int64_t>(bytes);
  ++machine().allocations;
  return at;
}
void release(void* at) {
  {
    const std::scoped_lock lock(machine().mutex);
    const auto taken = machine().taken.find(at);
    if (taken != machine().taken.end()) {
      machine().bytes[taken->second.gpu] -= taken->second.bytes;
      machine().taken.erase(taken);
    }
  }
  release_pinned(at);
}

int copy(void* stream, void* to, const void* from, std::size_t bytes) {
  return host::put(stream, [=] { std::memmove(to, from, bytes); },
                   {.kind = PIPEWRIGHT_CUDA_COPY, .bytes = static_cast<std::int64_t>(bytes)});
}
int clear(void* stream, void* at, std::size_t bytes) {
  return host::put(stream, [=] { std::memset(at, 0, bytes); },
                   {.kind = PIPEWRIGHT_CUDA_CLEAR, .bytes = static_cast<std::int64_t>(bytes)});
}

void* blas(void* stream, int sms, void*, std::size_t) {
  const std::scoped_lock lock(machine().mutex);
  machine().blas_sms.push_back(sms);
  return stream;
}
int gemm(void* blas_handle, const pipewright_cuda_gemm* g, int precision) {
  return host::put(blas_handle,
                   [g = *g, precision] {
                     for (int outer = 0; outer < g.outer; ++outer)
                       multiply_as_blas(exec::cuda::blas_call(g, outer, precision), g.bias);
                     if (g.column_sums != nullptr)
                       sum_columns(g, precision == PIPEWRIGHT_CUDA_BF16);
                   },
                   {.name = "blas_gemm"});
}

/// As cuBLAS (exec/devices/cuda/module/cublas_products.cpp): results of the factors' type alone.
int gemms_group(void*, const pipewright_cuda_gemm* gemms, int count, int precision) {
  const auto fits = [&](const pipewright_cuda_gemm& g) {
    return g.outer == 1 && g.inner == 1 && g.bias == nullptr && g.column_sums == nullptr &&
           (precision != PIPEWRIGHT_CUDA_BF16 || g.c_is_float == 0);
  };
  return std::all_of(gemms, gemms + count, fits) ? 1 : 0;
}
/// Where matrices lie is in the GPU's memory, and read when the work is done.
int grouped_gemm(void* blas_handle, const pipewright_cuda_gemm* gemms, int count, int precision,
                 void* const* pointers) {
  return host::put(
      blas_handle,
      [all = std::vector<pipewright_cuda_gemm>(gemms, gemms + count), precision, pointers] {
        for (std::size_t i = 0; i < all.size(); ++i) {
          pipewright_cuda_gemm one = all[i];
          one.a.data = pointers[i];
          one.b.data = pointers[all.size() + i];
          one.c = pointers[2 * all.size() + i];
          multiply_as_blas(exec::cuda::blas_call(one, 0, precision), nullptr);
        }
      },
      {.name = "grouped_gemm"});
}

struct QueuedAttention {
  void* stream;
  HostAttention of;
};
constexpr std::size_t kAttentionWorkspace = 64;

void* attention(void* stream, int, const pipewright_cuda_attention* shape) {
  return new QueuedAttention{stream, HostAttention(*shape)};
}
const Bfloat16* narrow(const void* numbers) { return static_cast<const Bfloat16*>(numbers); }
Bfloat16* narrow(void* numbers) { return static_cast<Bfloat16*>(numbers); }

int attend(void* which, const void* queries, const void* keys, const void* values, void* context,
           float* log_sums, void* workspace) {
  const auto* queued = static_cast<const QueuedAttention*>(which);
  return host::put(
      queued->stream,
      [=, of = queued->of] {
        std::memset(workspace, 0xFF, kAttentionWorkspace);
        of.forward({narrow(queries), narrow(keys), narrow(values)}, narrow(context), log_sums);
      },
      {.name = "attention"});
}
int attend_backward(void* which, const void* queries, const void* keys, const void* values,
                    const void* context, const float* log_sums, const void* dcontext,
                    void* dqueries, void* dkeys, void* dvalues, void* workspace) {
  const auto* queued = static_cast<const QueuedAttention*>(which);
  return host::put(queued->stream,
                   [=, of = queued->of] {
                     std::memset(workspace, 0xFF, kAttentionWorkspace);
                     of.backward({narrow(queries), narrow(keys), narrow(values)}, narrow(context),
                                 log_sums, narrow(dcontext),
                                 {narrow(dqueries), narrow(dkeys), narrow(dvalues)});
                   },
                   {.name = "attention_backward"});
}

template <HostOrder order>
pipewright_cuda table() {
  pipewright_cuda t{};
  t.abi = PIPEWRIGHT_CUDA_ABI;
  t.why = host::why;
  t.versions = versions;
  t.gpus = gpus;
  t.gpu = gpu;
  t.memory = memory;
  t.split = split;
  t.release_partition = release_partition;
  t.enter = enter;
  t.reach = [](int) { return 0; };
  t.allocate = allocate;
  t.release = release;
  t.allocate_pinned = allocate_pinned;
  t.release_pinned = release_pinned;
  t.copy = copy;
  t.clear = clear;
  t.stream = [](void*) { return host::make_stream(order); };
  t.release_stream = host::release_stream;
  t.event = [](int) { return host::make_event(); };
  t.release_event = host::release_event;
  t.record = host::record;
  t.mark = host::mark;
  t.stream_waits = host::stream_waits;
  t.is_over = host::is_over;
  t.wait_for_event = host::wait_for_event;
  t.elapsed_ms = host::elapsed_ms;
  t.blas = blas;
  t.release_blas = [](void*) {};
  t.gemm = gemm;
  t.gemm_fuses = [](void*, const pipewright_cuda_gemm*, int precision) {
    return precision == PIPEWRIGHT_CUDA_BF16 ? 1 : 0;
  };
  t.gemms_group = gemms_group;
  t.grouped_gemm = grouped_gemm;
  t.begin_capture = host::begin_capture;
  t.end_capture = host::end_capture;
  t.launch = host::launch;
  t.release_graph = host::release_graph;
  t.attention_is_there = [] { return 0; };
  t.attention_version = [] { return 90000; };
  t.attention = attention;
  t.release_attention = [](void* which) { delete static_cast<QueuedAttention*>(which); };
  t.attention_workspace = [](void*) { return kAttentionWorkspace; };
  t.attend = attend;
  t.attend_backward = attend_backward;
  t.is_profiled = [] { return 0; };
  t.range_name = [](const char*) -> void* { return nullptr; };
  t.begin_range = [](void*) {};
  t.end_range = [] {};
  host::offer_activities(t);
  t.kernels = exec::cuda::kernel_table<Launcher>();
  t.fast = exec::cuda::fast_kernel_table<Launcher, float>();
  t.bf16 = exec::cuda::fast_kernel_table<Launcher, Bfloat16>();
  return t;
}

}  // namespace

HostMemory host_memory() {
  const std::scoped_lock lock(machine().mutex);
  HostMemory memory{0, machine().allocations};
  for (const auto& [gpu, bytes] : machine().bytes) memory.bytes += bytes;
  return memory;
}

std::vector<int> host_blas_sms() {
  const std::scoped_lock lock(machine().mutex);
  return machine().blas_sms;
}

const pipewright_cuda& host_cuda(HostOrder order) {
  static const pipewright_cuda eager = table<HostOrder::Eager>(), lazy = table<HostOrder::Lazy>(),
                               shuffled = table<HostOrder::Shuffled>();
  switch (order) {
    case HostOrder::Eager:
      return eager;
    case HostOrder::Lazy:
      return lazy;
    default:
      return shuffled;
  }
}

}  // namespace pipewright::tests
