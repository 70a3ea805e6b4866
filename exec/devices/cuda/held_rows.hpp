// Rows that the threads which share them keep in registers: each number is read from memory once,
// by loads of 16 bytes, whatever a kernel then does with it, and written once. A row's threads are
// a warp, or a block where the row is longer; a thread has up to kMostHeldPacks packs of the row.
// This is for numerics whose sums may have an order of their own: a thread adds up its packs in
// ascending order, threads are combined in halves within a warp, then warps in halves. Which thread
// has what depends on the width alone.
#pragma once

#include "exec/devices/cuda/row_packs.hpp"

namespace pipewright::exec::cuda {

inline constexpr int kMostHeldPacks = 4, kLeastHeldLanes = 32, kMostHeldLanes = 512;

/// Threads of a row, and the packs that each has at most; no packs: the row does not fit.
struct HeldShape {
  int lanes = 0, packs = 0;
};

/// As few threads as can hold the row: a warp needs no barrier.
inline HeldShape held_shape(int width) {
  const int packs = width / kRowPack;
  if (width % kRowPack != 0 || packs == 0 || packs > kMostHeldLanes * kMostHeldPacks) return {};
  int lanes = kLeastHeldLanes;
  while (packs > lanes * kMostHeldPacks) lanes *= 2;
  return {lanes, (packs + lanes - 1) / lanes};
}

/// What one thread has of a row: pack k is pack lane + k · lanes of the row.
template <class T, int packs>
struct HeldPacks {
  Loaded<T, kRowPack> at[packs];
};

PIPEWRIGHT_HOST_DEVICE inline int held_place(int lane, int lanes, int k) {
  return (lane + k * lanes) * kRowPack;
}

template <int packs, class F>
PIPEWRIGHT_HOST_DEVICE inline void each_held_pack(int lane, int lanes, int n, F f) {
  for (int k = 0; k < packs; ++k) {
    const int j = held_place(lane, lanes, k);
    if (j < n) f(k, j);
  }
}

/// What is not there is read as the row's first pack: so no read waits for a comparison.
template <int packs, class T>
PIPEWRIGHT_HOST_DEVICE inline HeldPacks<T, packs> held_packs(int lane, int lanes, int n,
                                                             const T* row) {
  HeldPacks<T, packs> held;
  for (int k = 0; k < packs; ++k) {
    const int j = held_place(lane, lanes, k);
    held.at[k] = Loaded<T, kRowPack>(row + (j < n ? j : 0));
  }
  return held;
}

/// Pack k, which begins at element j: of what is held, and of what has to be read.
template <class T, int packs>
PIPEWRIGHT_HOST_DEVICE inline const Loaded<T, kRowPack>& pack_at(const HeldPacks<T, packs>& held,
                                                                 int k, int) {
  return held.at[k];
}
template <class T>
PIPEWRIGHT_HOST_DEVICE inline Loaded<T, kRowPack> pack_at(const T* row, int, int j) {
  return Loaded<T, kRowPack>(row + j);
}

/// What a thread brings to a sum of term(a[j], b[j], …); rows are held, or arrays.
template <int packs, class Term, class... Rows>
PIPEWRIGHT_HOST_DEVICE inline float held_part(int lane, int lanes, int n, Term term,
                                              const Rows&... rows) {
  float part = 0.0F;
  const auto add = [&](const auto&... loaded) {
    for (int i = 0; i < kRowPack; ++i) part += term(loaded[i]...);
  };
  each_held_pack<packs>(lane, lanes, n, [&](int k, int j) { add(pack_at(rows, k, j)...); });
  return part;
}

/// What a thread does of to[j] = f(a[j], b[j], …).
template <int packs, class F, class To, class... Rows>
PIPEWRIGHT_HOST_DEVICE inline void held_map(int lane, int lanes, int n, F f, To* to,
                                            const Rows&... rows) {
  const auto make = [&](int j, const auto&... loaded) {
    Loaded<To, kRowPack> made;
    for (int i = 0; i < kRowPack; ++i) made[i] = f(loaded[i]...);
    made.store(to + j);
  };
  each_held_pack<packs>(lane, lanes, n, [&](int k, int j) { make(j, pack_at(rows, k, j)...); });
}

}  // namespace pipewright::exec::cuda
