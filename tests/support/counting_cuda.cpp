#include "tests/support/counting_cuda.hpp"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <typeinfo>
#include <utility>

#include "exec/devices/cuda/kernel_table.hpp"
#include "exec/devices/cuda/launch_shape.hpp"

namespace pipewright::tests {
namespace {

std::mutex mutex;
std::vector<Launch> launches;       // guarded by the mutex
std::vector<std::int32_t> brought;  // the same

int note(Launch launch) {
  const std::scoped_lock lock(mutex);
  launches.push_back(std::move(launch));
  return 0;
}

template <class F>
std::size_t work_of_elements(const F& f, std::size_t n) {
  if constexpr (requires { f.work(); }) return f.work();
  return n;
}

template <class F>
std::size_t work_of_rows(const F& f, std::size_t n) {
  if constexpr (requires { f.width; }) return n * static_cast<std::size_t>(f.width);
  if constexpr (requires { f.sequence; }) return n * static_cast<std::size_t>(f.sequence);
  return n;
}

struct Launcher {
  template <class F>
  static int elements(void*, std::size_t n, F f) {
    return note({Launch::Kind::Kernel, typeid(F).name(),
                 exec::cuda::shape_of_elements<F>(n).all_threads(), work_of_elements(f, n)});
  }
  template <class F>
  static int rows(void*, std::size_t n, F f) {
    return note({Launch::Kind::Kernel, typeid(F).name(), exec::cuda::shape_of_rows(n).all_threads(),
                 work_of_rows(f, n)});
  }
  template <class F>
  static int wide_rows(void*, std::size_t n, F f) {
    return note({Launch::Kind::Kernel, typeid(F).name(),
                 exec::cuda::shape_of_wide_rows(n).all_threads(), work_of_rows(f, n)});
  }
  template <int, class F>
  static int held_rows(void*, std::size_t n, int lanes, F f) {
    return note({Launch::Kind::Kernel, typeid(F).name(),
                 exec::cuda::shape_of_held_rows(n, lanes).all_threads(), work_of_rows(f, n)});
  }
  template <class F>
  static int tiles(void*, F f) {
    const std::size_t blocks = exec::cuda::column_tiles_of(f.width) * f.parts;
    return note(
        {Launch::Kind::Kernel, typeid(F).name(), blocks * exec::cuda::kTileThreads, f.work()});
  }
  static int product(void*, const pipewright_cuda_gemm&) {
    return note({Launch::Kind::Product, "", 0, 0});
  }
  static int delay(void*, std::int64_t) { return 0; }
};

int copy(void*, void* to, const void*, std::size_t n) {
  {
    const std::scoped_lock lock(mutex);
    if (n == brought.size() * sizeof brought.front())
      std::copy(brought.begin(), brought.end(), static_cast<std::int32_t*>(to));
  }
  return note({Launch::Kind::Copy, "", 0, n});
}

int gpu(int, pipewright_cuda_gpu* facts) {
  *facts = {"counts", 132, 9, 0, std::int64_t{1} << 40, 8, 8};
  return 0;
}

/// A product of a batch is as many calls of cuBLAS as there are outer matrices.
int gemm(void*, const pipewright_cuda_gemm* g, int) {
  for (int outer = 0; outer < g->outer; ++outer) note({Launch::Kind::Product, "", 0, 0});
  return 0;
}

pipewright_cuda table() {
  static int something;
  pipewright_cuda t{};
  t.abi = PIPEWRIGHT_CUDA_ABI;
  t.why = [] { return "nothing can fail"; };
  t.gpus = [] { return 1; };
  t.gpu = gpu;
  t.enter = [](int, void*) { return 0; };
  t.reach = [](int) { return 0; };
  t.allocate = t.allocate_pinned = std::malloc;
  t.release = t.release_pinned = std::free;
  t.copy = copy;
  t.clear = [](void*, void*, std::size_t n) { return note({Launch::Kind::Clear, "", 0, n}); };
  t.stream = [](void*) -> void* { return &something; };
  t.release_stream = [](void*) {};
  t.event = [](int) -> void* { return &something; };
  t.release_event = [](void*) {};
  t.record = t.mark = t.stream_waits = [](void*, void*) { return 0; };
  t.is_over = [](void*) { return 1; };
  t.wait_for_event = [](void*) { return 0; };
  t.blas = [](void* stream, int, void*, std::size_t) { return stream; };
  t.release_blas = [](void*) {};
  t.gemm = gemm;
  t.gemm_fuses = [](void*, const pipewright_cuda_gemm*, int precision) {
    return precision == PIPEWRIGHT_CUDA_BF16 ? 1 : 0;
  };
  // As cuBLAS: results of the factors' type alone.
  t.gemms_group = [](void*, const pipewright_cuda_gemm* gemms, int count, int) {
    return std::all_of(gemms, gemms + count, [](const auto& g) { return g.c_is_float == 0; }) ? 1
                                                                                              : 0;
  };
  t.grouped_gemm = [](void*, const pipewright_cuda_gemm*, int, int, void* const*) {
    return note({Launch::Kind::Product, "", 0, 0});
  };
  t.attention_is_there = [] { return 0; };
  t.attention = [](void*, int, const pipewright_cuda_attention*) -> void* { return &something; };
  t.release_attention = [](void*) {};
  t.attention_workspace = [](void*) { return std::size_t{0}; };
  t.attend = [](void*, const void*, const void*, const void*, void*, float*, void*) {
    return note({Launch::Kind::Product, "", 0, 0});
  };
  t.attend_backward = [](void*, const void*, const void*, const void*, const void*, const float*,
                         const void*, void*, void*, void*, void*) {
    return note({Launch::Kind::Product, "", 0, 0});
  };
  t.kernels = exec::cuda::kernel_table<Launcher>();
  t.fast = exec::cuda::fast_kernel_table<Launcher, float>();
  t.bf16 = exec::cuda::fast_kernel_table<Launcher, exec::cuda::Bfloat16>();
  return t;
}

}  // namespace

const pipewright_cuda& counting_cuda() {
  static const pipewright_cuda one = table();
  return one;
}

void copies_bring(std::vector<std::int32_t> words) {
  const std::scoped_lock lock(mutex);
  brought = std::move(words);
}

std::vector<Launch> take_launches() {
  const std::scoped_lock lock(mutex);
  return std::exchange(launches, {});
}

}  // namespace pipewright::tests
