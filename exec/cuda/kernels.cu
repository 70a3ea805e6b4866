// How the kernels are launched on a GPU: grids, half warps for rows, and the tiles of the canonical
// product. What they compute is in elements.hpp, rows.hpp, columns.hpp and fixed_words.hpp. This
// file is compiled without contraction (-fmad=false): only what says fma is one.
#include <cuda_runtime.h>

#include <algorithm>

#include "exec/cuda/kernel_table.hpp"
#include "exec/cuda/kernels.hpp"

namespace pipewright::exec::cuda {
namespace {

// --- Elements -------------------------------------------------------------------------------------

template <class F>
__global__ void __launch_bounds__(256) element_kernel(std::size_t n, F f) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += step) {
    f(i);
  }
}

// --- Rows -----------------------------------------------------------------------------------------

/// Half a warp on one row: the Lanes of rows.hpp.
struct HalfWarp {
  int lane;
  unsigned mask;  // of the warp's threads that share the row

  template <class F>
  PIPEWRIGHT_HOST_DEVICE void each(int n, F f) const {
    for (int j = lane; j < n; j += kLanes) f(j);
  }
  template <class Combine, class Term>
  PIPEWRIGHT_HOST_DEVICE float reduce(int n, float start, Combine combine, Term term) const {
    float part = lane_part(lane, n, start, combine, term);
#if defined(__CUDA_ARCH__)
    for (int half = kLanes / 2; half > 0; half /= 2)
      part = combine(part, __shfl_down_sync(mask, part, half, kLanes));
    part = __shfl_sync(mask, part, 0, kLanes);
#endif
    return part;
  }
  template <class Term>
  PIPEWRIGHT_HOST_DEVICE float sum(int n, Term term) const {
    return reduce(n, 0.0F, Plus{}, term);
  }
  template <class F>
  PIPEWRIGHT_HOST_DEVICE void first(F f) const {
    if (lane == 0) f();
  }
  PIPEWRIGHT_HOST_DEVICE void sync() const {
#if defined(__CUDA_ARCH__)
    __syncwarp(mask);
#endif
  }
};

constexpr int kRowThreads = 128, kRowsOfBlock = kRowThreads / kLanes;

template <class F>
__global__ void __launch_bounds__(kRowThreads) row_kernel(std::size_t n, F f) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const unsigned mask = 0xFFFFU << (threadIdx.x % 32 / kLanes * kLanes);
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * kRowsOfBlock;
  for (std::size_t row = static_cast<std::size_t>(blockIdx.x) * kRowsOfBlock + threadIdx.x / kLanes;
       row < n; row += step) {
    f(HalfWarp{lane, mask}, row);
  }
}

// --- The canonical product ------------------------------------------------------------------------

constexpr int kTile = 64, kDepth = 16, kProductThreads = 256, kMicro = 4;

/// A kTile x kDepth piece of a factor in shared memory, [depth][tile], each row padded to spread it
/// over the banks.
struct Piece {
  float at[kDepth][kTile + 4];
};

/// `place` runs along c's rows (of a) or columns (of b), `along` along the chain; what lies side by
/// side in memory is read by neighbouring threads. Beyond the matrix stays what was there: the
/// chains end before it, and c's rows and columns there are not stored.
__device__ void load(Piece& piece, const float* from, std::int64_t of_place, std::int64_t of_depth,
                     int places, int depth) {
  const int thread = static_cast<int>(threadIdx.x);
  const bool depth_is_dense = of_depth == 1;
  for (int turn = 0; turn < kTile * kDepth / kProductThreads; ++turn) {
    const int index = turn * kProductThreads + thread;
    const int place = depth_is_dense ? index / kDepth : index % kTile;
    const int k = depth_is_dense ? index % kDepth : index / kTile;
    piece.at[k][place] =
        place < places && k < depth ? from[place * of_place + k * of_depth] : 0.0F;
  }
}

/// The chains' next `depth` links, k ascending.
__device__ void extend(float (&chain)[kMicro][kMicro], const Piece& a, const Piece& b, int row,
                       int column, int depth) {
#pragma unroll 4
  for (int k = 0; k < depth; ++k) {
    float left[kMicro], right[kMicro];
    for (int r = 0; r < kMicro; ++r) left[r] = a.at[k][row + r];
    for (int c = 0; c < kMicro; ++c) right[c] = b.at[k][column + c];
    for (int r = 0; r < kMicro; ++r) {
      for (int c = 0; c < kMicro; ++c) chain[r][c] = fused(left[r], right[c], chain[r][c]);
    }
  }
}

/// A block makes a tile of c, each thread a few elements of it whole.
__global__ void __launch_bounds__(kProductThreads) product_kernel(pipewright_cuda_gemm g) {
  __shared__ Piece a_piece, b_piece;
  const int outer = static_cast<int>(blockIdx.z) / g.inner,
            inner = static_cast<int>(blockIdx.z) % g.inner;
  const BatchMatrix a(g.a, outer, inner), b(g.b, outer, inner);
  float* const c = result_of(g, outer, inner);
  const int first_row = static_cast<int>(blockIdx.y) * kTile,
            first_column = static_cast<int>(blockIdx.x) * kTile;
  const int row = static_cast<int>(threadIdx.x) / 16 * kMicro,
            column = static_cast<int>(threadIdx.x) % 16 * kMicro;
  float chain[kMicro][kMicro];
  for (int r = 0; r < kMicro; ++r) {
    for (int j = 0; j < kMicro; ++j) {
      const int i = first_row + row + r, k = first_column + column + j;
      const bool continues = g.beta != 0.0F && i < g.m && k < g.n;
      chain[r][j] = continues ? c[static_cast<std::int64_t>(i) * g.c_stride + k] : 0.0F;
    }
  }
  for (int k = 0; k < g.k; k += kDepth) {
    const int depth = min(kDepth, g.k - k);
    load(a_piece, a.data + first_row * a.across + k * a.along, a.across, a.along, g.m - first_row,
         depth);
    load(b_piece, b.data + first_column * b.along + k * b.across, b.along, b.across,
         g.n - first_column, depth);
    __syncthreads();
    extend(chain, a_piece, b_piece, row, column, depth);
    __syncthreads();
  }
  for (int r = 0; r < kMicro; ++r) {
    for (int j = 0; j < kMicro; ++j) {
      const int i = first_row + row + r, k = first_column + column + j;
      if (i < g.m && k < g.n) {
        c[static_cast<std::int64_t>(i) * g.c_stride + k] = g.alpha * chain[r][j];
      }
    }
  }
}

// --- A delay --------------------------------------------------------------------------------------

__device__ std::uint64_t nanoseconds_now() {
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void delay_kernel(std::uint64_t nanoseconds) {
  const std::uint64_t begin = nanoseconds_now();
  while (nanoseconds_now() - begin < nanoseconds) __nanosleep(200);
}

// --- Launching ------------------------------------------------------------------------------------

constexpr std::size_t kMostBlocks = 16384;

unsigned blocks_for(std::size_t n, std::size_t of_block) {
  return static_cast<unsigned>(std::min(kMostBlocks, (n + of_block - 1) / of_block));
}

struct Launcher {
  template <class F>
  static int elements(void* stream, std::size_t n, F f) {
    if (n == 0) return 0;
    // Few elements are long ones, the columns: small blocks spread them over more of the GPU.
    const unsigned threads = n < 32768 ? 64 : 256;
    element_kernel<<<blocks_for(n, threads), threads, 0, static_cast<cudaStream_t>(stream)>>>(n, f);
    return noted(cudaGetLastError(), "a kernel of elements");
  }
  template <class F>
  static int rows(void* stream, std::size_t n, F f) {
    if (n == 0) return 0;
    row_kernel<<<blocks_for(n, kRowsOfBlock), kRowThreads, 0,
                 static_cast<cudaStream_t>(stream)>>>(n, f);
    return noted(cudaGetLastError(), "a kernel of rows");
  }
  static int product(void* stream, const pipewright_cuda_gemm& g) {
    const dim3 grid(static_cast<unsigned>((g.n + kTile - 1) / kTile),
                    static_cast<unsigned>((g.m + kTile - 1) / kTile),
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

}  // namespace pipewright::exec::cuda
