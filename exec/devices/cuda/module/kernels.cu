// How the kernels are launched on a GPU: half warps or blocks for rows, and the tiles of the
// canonical product; exec/devices/cuda/launch_shape.hpp has the grids. What they compute is in
// exec/devices/cuda/: elements.hpp, rows.hpp, columns.hpp, column_tiles.hpp, fixed_words.hpp,
// product_tiles.hpp and expert_elements.hpp. This file is compiled without contraction
// (-fmad=false): only what says fma is one.
#include <cuda_runtime.h>

#include "exec/devices/cuda/kernel_table.hpp"
#include "exec/devices/cuda/launch_shape.hpp"
#include "exec/devices/cuda/module/kernels.hpp"
#include "exec/devices/cuda/product_tiles.hpp"

namespace pipewright::exec::cuda {
namespace {

// --- Elements ---

template <class F>
__global__ void __launch_bounds__(256) element_kernel(std::size_t n, F f) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += step) {
    f(i);
  }
}

/// Packs of elements, and then what does not fill one.
template <class F>
__global__ void __launch_bounds__(256) pack_kernel(std::size_t n, F f) {
  constexpr std::size_t kPack = pack_of<F>();
  const std::size_t packs = n / kPack,
                    first = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t p = first; p < packs; p += step) f.pack(p * kPack);
  for (std::size_t i = packs * kPack + first; i < n; i += step) f(i);
}

// --- Rows ---

/// What the lanes of a row do alike, `kCount` of them: Lanes of exec/devices/cuda/rows.hpp, whose
/// sync() is Self's, and so is together(): from the parts of all lanes to what each of them gets.
template <class Self, int kCount, bool packed>
struct RowLanes {
  int lane;

  template <class F, class To, class... Arrays>
  PIPEWRIGHT_HOST_DEVICE void map(int n, F f, To* to, const Arrays*... arrays) const {
    lane_map<kCount, packed>(lane, n, f, to, arrays...);
  }
  template <class T>
  PIPEWRIGHT_HOST_DEVICE const T* hold(int, const T* row) const {
    return row;
  }
  template <class Term, class... Arrays>
  PIPEWRIGHT_HOST_DEVICE float sum(int n, Term term, const Arrays*... arrays) const {
    return reduce(n, 0.0F, Plus{}, term, arrays...);
  }
  template <class Combine, class Term, class... Arrays>
  PIPEWRIGHT_HOST_DEVICE float reduce(int n, float start, Combine combine, Term term,
                                      const Arrays*... arrays) const {
    return static_cast<const Self&>(*this).together(
        lane_part<kCount, packed>(lane, n, start, combine, term, arrays...), combine);
  }
  template <class Combine, class Term>
  PIPEWRIGHT_HOST_DEVICE float reduce_places(int n, float start, Combine combine, Term term) const {
    return static_cast<const Self&>(*this).together(
        lane_places<kCount>(lane, n, start, combine, term), combine);
  }
  template <class F>
  PIPEWRIGHT_HOST_DEVICE void each_place(int n, F f) const {
    for (int j = lane; j < n; j += kCount) f(j);
  }
  template <class F>
  PIPEWRIGHT_HOST_DEVICE void first(F f) const {
    if (lane == 0) f();
  }
};

#if defined(__CUDA_ARCH__)
/// In halves: afterwards the first of each `kCount` neighbours has what they have together.
/// `width`: of the parts of a warp that do this by themselves.
template <int kCount, class Combine>
__device__ float in_halves(unsigned mask, float part, Combine combine, int width = kWarp) {
  for (int half = kCount / 2; half > 0; half /= 2)
    part = combine(part, __shfl_down_sync(mask, part, half, width));
  return part;
}
#endif

/// Half a warp on one row.
struct HalfWarp : RowLanes<HalfWarp, kLanes, false> {
  unsigned mask;  // of the warp's threads that share the row

  template <class Combine>
  PIPEWRIGHT_HOST_DEVICE float together(float part, [[maybe_unused]] Combine combine) const {
#if defined(__CUDA_ARCH__)
    part = in_halves<kLanes>(mask, part, combine, kLanes);
    part = __shfl_sync(mask, part, 0, kLanes);
#endif
    return part;
  }
  PIPEWRIGHT_HOST_DEVICE void sync() const {
#if defined(__CUDA_ARCH__)
    __syncwarp(mask);
#endif
  }
};

template <class F>
__global__ void __launch_bounds__(kRowThreads) row_kernel(std::size_t n, F f) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const unsigned mask = 0xFFFFU << (threadIdx.x % 32 / kLanes * kLanes);
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * kRowsOfBlock;
  for (std::size_t row = static_cast<std::size_t>(blockIdx.x) * kRowsOfBlock + threadIdx.x / kLanes;
       row < n; row += step) {
    f(HalfWarp{{lane}, mask}, row);
  }
}

/// A block on one row.
struct WholeBlock : RowLanes<WholeBlock, kWideLanes, true> {
  static constexpr int kWarps = kWideLanes / kWarp;

  float* of_warps;  // shared memory, kWarps floats

  template <class Combine>
  PIPEWRIGHT_HOST_DEVICE float together(float part, [[maybe_unused]] Combine combine) const {
#if defined(__CUDA_ARCH__)
    constexpr unsigned kAll = 0xFFFFFFFFU;
    part = in_halves<kWarp>(kAll, part, combine);
    if (lane % kWarp == 0) of_warps[lane / kWarp] = part;
    __syncthreads();
    if (lane < kWarp) {
      part = in_halves<kWarps>(kAll, of_warps[lane % kWarps], combine);
      if (lane == 0) of_warps[0] = part;
    }
    __syncthreads();
    part = of_warps[0];
    __syncthreads();
#endif
    return part;
  }
  PIPEWRIGHT_HOST_DEVICE void sync() const {
#if defined(__CUDA_ARCH__)
    __syncthreads();
#endif
  }
};

template <class F>
__global__ void __launch_bounds__(kWideLanes) wide_row_kernel(std::size_t n, F f) {
  __shared__ float of_warps[WholeBlock::kWarps];
  for (std::size_t row = blockIdx.x; row < n; row += gridDim.x)
    f(WholeBlock{{static_cast<int>(threadIdx.x)}, of_warps}, row);
}

/// A warp or a block on one row, which it keeps in registers.
template <int packs>
struct HoldingLanes {
  int lane, lanes;
  float* of_warps;  // shared memory, two times kMostHeldLanes / kWarp floats
  mutable int turn = 0;

  template <class T>
  PIPEWRIGHT_HOST_DEVICE HeldPacks<T, packs> hold(int n, const T* row) const {
    return held_packs<packs>(lane, lanes, n, row);
  }
  template <class Term, class... Rows>
  PIPEWRIGHT_HOST_DEVICE float sum(int n, Term term, const Rows&... rows) const {
    return together(held_part<packs>(lane, lanes, n, term, rows...));
  }
  template <class F, class To, class... Rows>
  PIPEWRIGHT_HOST_DEVICE void map(int n, F f, To* to, const Rows&... rows) const {
    held_map<packs>(lane, lanes, n, f, to, rows...);
  }
  template <class F>
  PIPEWRIGHT_HOST_DEVICE void first(F f) const {
    if (lane == 0) f();
  }

 private:
  /// Of `count` neighbours in a warp each gets what they have together. a + b is b + a, so all get
  /// the bits of the first, which are those of halves.
  PIPEWRIGHT_HOST_DEVICE static float exchanged(float part, [[maybe_unused]] int count) {
#if defined(__CUDA_ARCH__)
    for (int half = count / 2; half > 0; half /= 2)
      part += __shfl_xor_sync(0xFFFFFFFFU, part, half);
#endif
    return part;
  }
  /// One barrier a sum: the next one has the other half of the shared memory, and who writes to
  /// this one again has passed that one's barrier, behind everybody's reads.
  PIPEWRIGHT_HOST_DEVICE float together(float part) const {
    part = exchanged(part, kWarp);
    if (lanes == kWarp) return part;
#if defined(__CUDA_ARCH__)
    const int warps = lanes / kWarp;
    float* const own = of_warps + turn * (kMostHeldLanes / kWarp);
    turn = 1 - turn;
    if (lane % kWarp == 0) own[lane / kWarp] = part;
    __syncthreads();
    part = exchanged(own[lane & (warps - 1)], warps);
#endif
    return part;
  }
};

/// blockDim: the threads of a row, and the rows of a block.
template <int packs, class F>
__global__ void __launch_bounds__(kMostHeldLanes, 1) held_row_kernel(std::size_t n, F f) {
  __shared__ float of_warps[2 * (kMostHeldLanes / kWarp)];
  const HoldingLanes<packs> own{static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x),
                                of_warps};
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.y;
  for (std::size_t row = static_cast<std::size_t>(blockIdx.x) * blockDim.y + threadIdx.y; row < n;
       row += step)
    f(own, row);
}

// --- Columns ---

template <class F>
__global__ void __launch_bounds__(kTileThreads) column_kernel(F f) {
  __shared__ typename F::Shared shared;
  f.add(blockIdx.x, blockIdx.y, static_cast<int>(threadIdx.x), shared);
  __syncthreads();
  f.total(blockIdx.x, blockIdx.y, static_cast<int>(threadIdx.x), shared);
}

// --- The canonical product ---

__global__ void __launch_bounds__(kProductThreads) product_kernel(pipewright_cuda_gemm g) {
  __shared__ Pieces pieces;
  TileThread tile(g, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y),
                  static_cast<int>(blockIdx.z), static_cast<int>(threadIdx.x));
  for (int k = 0; k < g.k; k += kDepth) {
    tile.load(pieces, k);
    __syncthreads();
    tile.extend(pieces, k);
    __syncthreads();
  }
  tile.store();
}

// --- A delay ---

__device__ std::uint64_t nanoseconds_now() {
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void delay_kernel(std::uint64_t nanoseconds) {
  const std::uint64_t begin = nanoseconds_now();
  while (nanoseconds_now() - begin < nanoseconds) __nanosleep(200);
}

// --- Launching ---

struct Launcher {
  template <class F>
  static int elements(void* stream, std::size_t n, F f) {
    if (n == 0) return 0;
    const LaunchShape shape = shape_of_elements<F>(n);
    if constexpr (pack_of<F>() > 1)
      pack_kernel<<<shape.blocks, shape.threads, 0, static_cast<cudaStream_t>(stream)>>>(n, f);
    else
      element_kernel<<<shape.blocks, shape.threads, 0, static_cast<cudaStream_t>(stream)>>>(n, f);
    return noted(cudaGetLastError(), "a kernel of elements");
  }
  template <class F>
  static int rows(void* stream, std::size_t n, F f) {
    if (n == 0) return 0;
    const LaunchShape shape = shape_of_rows(n);
    row_kernel<<<shape.blocks, shape.threads, 0, static_cast<cudaStream_t>(stream)>>>(n, f);
    return noted(cudaGetLastError(), "a kernel of rows");
  }
  template <class F>
  static int wide_rows(void* stream, std::size_t n, F f) {
    if (n == 0) return 0;
    const LaunchShape shape = shape_of_wide_rows(n);
    wide_row_kernel<<<shape.blocks, shape.threads, 0, static_cast<cudaStream_t>(stream)>>>(n, f);
    return noted(cudaGetLastError(), "a kernel of long rows");
  }
  template <int packs, class F>
  static int held_rows(void* stream, std::size_t n, int lanes, F f) {
    if (n == 0) return 0;
    const dim3 block(static_cast<unsigned>(lanes), rows_of_held_block(lanes));
    held_row_kernel<packs>
        <<<shape_of_held_rows(n, lanes).blocks, block, 0, static_cast<cudaStream_t>(stream)>>>(n,
                                                                                               f);
    return noted(cudaGetLastError(), "a kernel of held rows");
  }
  template <class F>
  static int tiles(void* stream, F f) {
    const dim3 grid(static_cast<unsigned>(column_tiles_of(f.width)),
                    static_cast<unsigned>(f.parts));
    column_kernel<<<grid, kTileThreads, 0, static_cast<cudaStream_t>(stream)>>>(f);
    return noted(cudaGetLastError(), "sums of columns");
  }
  static int product(void* stream, const pipewright_cuda_gemm& g) {
    const dim3 grid(static_cast<unsigned>(tiles_of(g.n)), static_cast<unsigned>(tiles_of(g.m)),
                    static_cast<unsigned>(g.outer * g.inner));
    product_kernel<<<grid, kProductThreads, 0, static_cast<cudaStream_t>(stream)>>>(g);
    return noted(cudaGetLastError(), "the canonical product");
  }
  static int delay(void* stream, std::int64_t nanoseconds) {
    if (nanoseconds <= 0) return 0;
    delay_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<std::uint64_t>(nanoseconds));
    return noted(cudaGetLastError(), "a delay");
  }
};

}  // namespace

pipewright_cuda_kernels gpu_kernels() { return kernel_table<Launcher>(); }
pipewright_cuda_kernels fast_gpu_kernels() { return fast_kernel_table<Launcher, float>(); }
pipewright_cuda_kernels bf16_gpu_kernels() { return fast_kernel_table<Launcher, Bfloat16>(); }

}  // namespace pipewright::exec::cuda
