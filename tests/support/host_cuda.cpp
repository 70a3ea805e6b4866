#include "tests/support/host_cuda.hpp"

#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "exec/cuda/column_major.hpp"
#include "exec/cuda/kernel_table.hpp"
#include "exec/cuda/product_tiles.hpp"
#include "exec/random.hpp"

namespace pipewright::tests {
namespace {

using exec::cuda::kLanes;
using exec::cuda::lane_part;

// --- Streams and events ---

struct Stream;
using StreamPtr = std::shared_ptr<Stream>;

/// Work, or a wait until `other` has done so much.
struct Entry {
  std::function<void()> work;
  StreamPtr other;
  std::uint64_t position = 0;
};

struct Stream {
  HostOrder order = HostOrder::Eager;
  std::deque<Entry> entries;
  std::uint64_t put = 0, done = 0;
};

struct Event {
  StreamPtr stream;
  std::uint64_t position = 0;
  std::shared_ptr<double> milliseconds = std::make_shared<double>(0);
};

/// The streams of all tables, and who may touch them: one thread at a time.
struct World {
  std::recursive_mutex mutex;
  std::vector<StreamPtr> streams;
  std::uint64_t turn = 0;
};

World& world() {
  static World one;
  return one;
}

StreamPtr& stream_of(void* stream) { return *static_cast<StreamPtr*>(stream); }
Event& event_of(void* event) { return *static_cast<Event*>(event); }

void do_until(Stream& stream, std::uint64_t position) {
  while (stream.done < position) {
    const Entry next = std::move(stream.entries.front());
    stream.entries.pop_front();
    if (next.other != nullptr) do_until(*next.other, next.position);
    if (next.work) next.work();
    ++stream.done;
  }
}

/// Some entries of some stream of the same order.
void do_something() {
  World& all = world();
  const auto pick = [&](std::uint64_t n) {
    return exec::uniform_below(exec::key_of(1, "turn"), ++all.turn, n);
  };
  Stream& stream = *all.streams[pick(all.streams.size())];
  if (stream.order == HostOrder::Shuffled)
    do_until(stream, stream.done + pick(stream.put - stream.done + 1));
}

int put(void* on, Entry entry) {
  const std::scoped_lock lock(world().mutex);
  Stream& stream = *stream_of(on);
  stream.entries.push_back(std::move(entry));
  ++stream.put;
  if (stream.order == HostOrder::Eager) do_until(stream, stream.put);
  if (stream.order == HostOrder::Shuffled) do_something();
  return 0;
}

template <HostOrder order>
void* make_stream(void*) {
  const std::scoped_lock lock(world().mutex);
  auto made = std::make_shared<Stream>();
  made->order = order;
  world().streams.push_back(made);
  return new StreamPtr(std::move(made));
}

void release_stream(void* stream) {
  const std::scoped_lock lock(world().mutex);
  const std::unique_ptr<StreamPtr> own(static_cast<StreamPtr*>(stream));
  do_until(**own, (*own)->put);
  std::erase(world().streams, *own);
}

double now_ms() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

int record(void* which, void* on) {
  const std::scoped_lock lock(world().mutex);
  Event& event = event_of(which);
  event.milliseconds = std::make_shared<double>(0);
  put(on, {[at = event.milliseconds] { *at = now_ms(); }, nullptr, 0});
  event.stream = stream_of(on);
  event.position = event.stream->put;
  return 0;
}

int stream_waits(void* on, void* which) {
  const std::scoped_lock lock(world().mutex);
  const Event& event = event_of(which);
  if (event.stream == nullptr || event.stream == stream_of(on)) return 0;
  return put(on, {nullptr, event.stream, event.position});
}

int wait_for_event(void* which) {
  const std::scoped_lock lock(world().mutex);
  const Event& event = event_of(which);
  if (event.stream != nullptr) do_until(*event.stream, event.position);
  return 0;
}

int is_over(void* which) { return wait_for_event(which) == 0 ? 1 : -1; }

int elapsed_ms(void* from, void* to, float* ms) {
  *ms = static_cast<float>(*event_of(to).milliseconds - *event_of(from).milliseconds);
  return 0;
}

// --- Kernels ---

/// The sixteen lanes one after another.
struct HostLanes {
  template <class F>
  void each(int n, F f) const {
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int j = lane; j < n; j += kLanes) f(j);
    }
  }
  template <class Combine, class Term>
  float reduce(int n, float start, Combine combine, Term term) const {
    std::array<float, kLanes> parts{};
    for (int lane = 0; lane < kLanes; ++lane)
      parts[static_cast<unsigned>(lane)] = lane_part(lane, n, start, combine, term);
    for (unsigned half = kLanes / 2; half > 0; half /= 2) {
      // All lanes at once, as a warp's threads shift down.
      for (unsigned lane = 0; lane < half; ++lane)
        parts[lane] = combine(parts[lane], parts[lane + half]);
    }
    return parts[0];
  }
  template <class Term>
  float sum(int n, Term term) const {
    return reduce(n, 0.0F, exec::cuda::Plus{}, term);
  }
  template <class F>
  void first(F f) const {
    f();
  }
  void sync() const {}
};

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

/// A column-major product, plainly, as cuBLAS defines it.
void multiply_as_blas(const exec::cuda::BlasCall& call) {
  const auto at = [](const exec::cuda::BlasFactor& f, int matrix, int row, int column) {
    const int across = f.transposed ? row : column, along = f.transposed ? column : row;
    return f.data[matrix * f.step + static_cast<std::ptrdiff_t>(across) * f.leading + along];
  };
  for (int matrix = 0; matrix < call.count; ++matrix) {
    for (int j = 0; j < call.n; ++j) {
      for (int i = 0; i < call.m; ++i) {
        double sum = 0;
        for (int k = 0; k < call.k; ++k) {
          sum += static_cast<double>(at(call.first, matrix, i, k)) *
                 static_cast<double>(at(call.second, matrix, k, j));
        }
        float& to = call.result[matrix * call.result_step +
                                static_cast<std::ptrdiff_t>(j) * call.result_leading + i];
        to = static_cast<float>(static_cast<double>(call.alpha) * sum +
                                (call.beta == 0.0F ? 0.0 : static_cast<double>(call.beta * to)));
      }
    }
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

struct Launcher {
  template <class F>
  static int elements(void* stream, std::size_t n, F f) {
    return put(stream, {[n, f] {
                          for (std::size_t i = 0; i < n; ++i) f(i);
                        },
                        nullptr, 0});
  }
  template <class F>
  static int rows(void* stream, std::size_t n, F f) {
    return put(stream, {[n, f] {
                          for (std::size_t row = 0; row < n; ++row) f(HostLanes{}, row);
                        },
                        nullptr, 0});
  }
  static int product(void* stream, const pipewright_cuda_gemm& g) {
    return put(stream, {[g] {
                          for (int z = 0; z < g.outer * g.inner; ++z) multiply(g, z);
                        },
                        nullptr, 0});
  }
  static int delay(void* stream, std::int64_t) { return put(stream, {}); }
};

// --- The rest of the table ---

const char* why() { return "the host's table does not fail"; }
void versions(pipewright_cuda_versions* of) { *of = {13000, 13000, 130100}; }
int gpus() { return 2; }
int gpu(int, pipewright_cuda_gpu* facts) {
  *facts = {"the host", 132, 9, 0, std::int64_t{1} << 34, 8, 8};
  return 0;
}
int memory(std::int64_t* free_bytes, std::int64_t* total_bytes) {
  *free_bytes = *total_bytes = std::int64_t{1} << 34;
  return 0;
}

int split(int, int, int count, void** partitions) {
  for (int i = 0; i < count; ++i) partitions[i] = new int(i);
  return 0;
}
void release_partition(void* partition) { delete static_cast<int*>(partition); }

void* allocate(std::size_t bytes) {
  void* at = ::operator new(bytes);
  std::memset(at, 0xFF, bytes);
  return at;
}
void release(void* at) { ::operator delete(at); }

int copy(void* stream, void* to, const void* from, std::size_t bytes) {
  return put(stream, {[=] { std::memmove(to, from, bytes); }, nullptr, 0});
}
int clear(void* stream, void* at, std::size_t bytes) {
  return put(stream, {[=] { std::memset(at, 0, bytes); }, nullptr, 0});
}

void* blas(void* stream, void*, std::size_t) { return stream; }
int gemm(void* blas_handle, const pipewright_cuda_gemm* g, int) {
  return put(blas_handle, {[g = *g] {
                             for (int outer = 0; outer < g.outer; ++outer)
                               multiply_as_blas(exec::cuda::blas_call(g, outer));
                           },
                           nullptr, 0});
}

template <HostOrder order>
pipewright_cuda table() {
  pipewright_cuda t{};
  t.abi = PIPEWRIGHT_CUDA_ABI;
  t.why = why;
  t.versions = versions;
  t.gpus = gpus;
  t.gpu = gpu;
  t.memory = memory;
  t.split = split;
  t.release_partition = release_partition;
  t.enter = [](int, void*) { return 0; };
  t.reach = [](int) { return 0; };
  t.allocate = t.allocate_pinned = allocate;
  t.release = t.release_pinned = release;
  t.copy = copy;
  t.clear = clear;
  t.stream = make_stream<order>;
  t.release_stream = release_stream;
  t.event = [](int) -> void* { return new Event(); };
  t.release_event = [](void* event) { delete static_cast<Event*>(event); };
  t.record = record;
  t.stream_waits = stream_waits;
  t.is_over = is_over;
  t.wait_for_event = wait_for_event;
  t.elapsed_ms = elapsed_ms;
  t.blas = blas;
  t.release_blas = [](void*) {};
  t.gemm = gemm;
  t.begin_capture = [](void*) { return 1; };
  t.end_capture = [](void*) -> void* { return nullptr; };
  t.launch = [](void*, void*) { return 1; };
  t.release_graph = [](void*) {};
  t.kernels = exec::cuda::kernel_table<Launcher>();
  return t;
}

}  // namespace

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
