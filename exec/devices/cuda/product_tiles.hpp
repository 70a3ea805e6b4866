// The canonical product by tiles, for a GPU: a block of threads makes a tile of c, each thread a
// few of its elements whole, so that each stays one chain c = fma(a_ik, b_kj, c), k ascending, as
// exec/devices/cpu/kernels/canonical_gemm.hpp defines it. The two phases of a step along the
// chains, between which all threads of a block have to meet, are functions of the thread, so that a
// test can run them on the CPU, one thread after another.
#pragma once

#include <cstdint>

#include "exec/devices/cuda/products.hpp"

namespace pipewright::exec::cuda {

inline constexpr int kTile = 64, kDepth = 16, kProductThreads = 256, kMicro = 4;
static_assert(kTile * kTile == kProductThreads * kMicro * kMicro);

/// A kTile x kDepth piece of a factor, [depth][tile]; the rows are padded to spread them over the
/// banks of shared memory.
struct Piece {
  float at[kDepth][kTile + 4];
};
struct Pieces {
  Piece a, b;
};

/// `place` runs along a's rows or b's columns; what lies side by side in memory is read by
/// neighbouring threads.
PIPEWRIGHT_HOST_DEVICE inline void load_piece(Piece& piece, int thread, const float* from,
                                              std::int64_t of_place, std::int64_t of_depth,
                                              int places, int depth) {
  const bool depth_is_dense = of_depth == 1;
  for (int turn = 0; turn < kTile * kDepth / kProductThreads; ++turn) {
    const int index = turn * kProductThreads + thread;
    const int place = depth_is_dense ? index / kDepth : index % kTile;
    const int k = depth_is_dense ? index % kDepth : index / kTile;
    const bool is_there = place < places && k < depth;
    piece.at[k][place] = is_there ? from[place * of_place + k * of_depth] : 0.0F;
  }
}

/// What one thread does of one tile: column block x, row block y, matrix z of the batch.
class TileThread {
 public:
  PIPEWRIGHT_HOST_DEVICE TileThread(const pipewright_cuda_gemm& g, int x, int y, int z, int thread)
      : g_(g),
        a_(g.a, z / g.inner, z % g.inner),
        b_(g.b, z / g.inner, z % g.inner),
        c_(result_of(g, z / g.inner, z % g.inner)),
        thread_(thread),
        first_row_(y * kTile),
        first_column_(x * kTile),
        row_(thread / (kTile / kMicro) * kMicro),
        column_(thread % (kTile / kMicro) * kMicro) {
    for (int r = 0; r < kMicro; ++r) {
      for (int c = 0; c < kMicro; ++c)
        chain_[r][c] = g.beta != 0.0F && is_inside(r, c) ? *place_of(r, c) : 0.0F;
    }
  }

  /// The first phase: this thread's share of the factors' pieces at depth k.
  PIPEWRIGHT_HOST_DEVICE void load(Pieces& pieces, int k) const {
    load_piece(pieces.a, thread_, a_.data + first_row_ * a_.across + k * a_.along, a_.across,
               a_.along, g_.m - first_row_, g_.k - k);
    load_piece(pieces.b, thread_, b_.data + first_column_ * b_.along + k * b_.across, b_.along,
               b_.across, g_.n - first_column_, g_.k - k);
  }

  /// The second: the chains' links from k on. What lies beyond the chains' end is no link of them:
  /// fma(0, 0, -0) is 0, and not -0.
  PIPEWRIGHT_HOST_DEVICE void extend(const Pieces& pieces, int k) {
    const int depth = g_.k - k < kDepth ? g_.k - k : kDepth;
    for (int link = 0; link < depth; ++link) {
      float left[kMicro], right[kMicro];
      for (int r = 0; r < kMicro; ++r) left[r] = pieces.a.at[link][row_ + r];
      for (int c = 0; c < kMicro; ++c) right[c] = pieces.b.at[link][column_ + c];
      for (int r = 0; r < kMicro; ++r) {
        for (int c = 0; c < kMicro; ++c) chain_[r][c] = fused(left[r], right[c], chain_[r][c]);
      }
    }
  }

  PIPEWRIGHT_HOST_DEVICE void store() const {
    for (int r = 0; r < kMicro; ++r) {
      for (int c = 0; c < kMicro; ++c) {
        if (is_inside(r, c)) *place_of(r, c) = g_.alpha * chain_[r][c];
      }
    }
  }

 private:
  PIPEWRIGHT_HOST_DEVICE bool is_inside(int r, int c) const {
    return first_row_ + row_ + r < g_.m && first_column_ + column_ + c < g_.n;
  }
  PIPEWRIGHT_HOST_DEVICE float* place_of(int r, int c) const {
    return c_ + static_cast<std::int64_t>(first_row_ + row_ + r) * g_.c_stride + first_column_ +
           column_ + c;
  }

  const pipewright_cuda_gemm& g_;
  const BatchMatrix a_, b_;
  float* const c_;
  const int thread_, first_row_, first_column_, row_, column_;
  float chain_[kMicro][kMicro];
};

/// Tiles of c across and down.
inline int tiles_of(int size) { return (size + kTile - 1) / kTile; }

}  // namespace pipewright::exec::cuda
