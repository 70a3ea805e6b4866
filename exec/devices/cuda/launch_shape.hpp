// Of how many blocks and threads a launch on a GPU consists: known to whoever launches, and to the
// tests that count threads. Pure functions.
#pragma once

#include <algorithm>
#include <cstddef>

#include "exec/devices/cuda/rows.hpp"

namespace pipewright::exec::cuda {

struct LaunchShape {
  unsigned blocks = 0, threads = 0;  // threads of a block
  std::size_t all_threads() const { return std::size_t{blocks} * threads; }
};

/// Beyond that each thread does several.
inline constexpr std::size_t kMostBlocks = 16384;
/// Threads of a block, where half a warp has a row.
inline constexpr int kRowThreads = 128, kRowsOfBlock = kRowThreads / kLanes;

inline unsigned blocks_for(std::size_t n, std::size_t of_block) {
  return static_cast<unsigned>(std::min(kMostBlocks, (n + of_block - 1) / of_block));
}

/// Elements that a thread does at once.
template <class F>
constexpr std::size_t pack_of() {
  if constexpr (requires { F::kPack; }) return F::kPack;
  return 1;
}

/// Of n elements: a thread for each pack of them, and for each of the last ones. Few elements are
/// long ones: small blocks spread them over more of the GPU.
template <class F>
LaunchShape shape_of_elements(std::size_t n) {
  const std::size_t each = n / pack_of<F>() + n % pack_of<F>();
  const unsigned threads = each < 32768 ? 64 : 256;
  return {blocks_for(each, threads), threads};
}

inline LaunchShape shape_of_rows(std::size_t n) {
  return {blocks_for(n, kRowsOfBlock), kRowThreads};
}

/// A block for each row.
inline LaunchShape shape_of_wide_rows(std::size_t n) { return {blocks_for(n, 1), kWideLanes}; }

/// Of held rows a block has several where each is a warp's, else one.
inline unsigned rows_of_held_block(int lanes) {
  return static_cast<unsigned>(lanes == kLeastHeldLanes ? kRowThreads / kLeastHeldLanes : 1);
}
inline LaunchShape shape_of_held_rows(std::size_t n, int lanes) {
  const unsigned rows = rows_of_held_block(lanes);
  return {blocks_for(n, rows), rows * static_cast<unsigned>(lanes)};
}

}  // namespace pipewright::exec::cuda
