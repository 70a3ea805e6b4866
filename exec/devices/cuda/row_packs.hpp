// How the threads that share a row go through its arrays: one number a thread after another, or,
// where an order of sums may be chosen, packs of them (exec/devices/cuda/packs.hpp) as far as the
// arrays have these at the same places. Which thread has what depends on the shape and on where the
// row begins, so a run gives the same bits again.
#pragma once

#include <cstdint>

#include "exec/devices/cuda/bfloat16.hpp"
#include "exec/devices/cuda/packs.hpp"

namespace pipewright::exec::cuda {

/// Numbers of a pack, whatever they are: sums of floats and of bfloat16 then have one order.
inline constexpr int kRowPack = kPackOf<Bfloat16>;

/// The first element at which all arrays begin a pack; -1: there is none.
template <class First, class... Others>
PIPEWRIGHT_HOST_DEVICE inline int first_pack(const First* first, const Others*... others) {
  const auto place = [](const auto* array) {
    return static_cast<int>(reinterpret_cast<std::uintptr_t>(array) / sizeof(*array) % kRowPack);
  };
  const int own = place(first);
  const bool alike = ((place(others) == own) && ... && true);
  return alike ? (kRowPack - own) % kRowPack : -1;
}

/// Calls one(j) for single elements and pack(j) for those of a pack from j on, which together are
/// the n elements of the arrays; each of the `lanes` threads has some of them.
template <int lanes, class One, class Many, class... Arrays>
PIPEWRIGHT_HOST_DEVICE inline void in_packs(int lane, int n, One one, Many pack,
                                            const Arrays*... arrays) {
  const int first = first_pack(arrays...);
  const int head = first < 0 || first > n ? n : first;
  const int packs = (n - head) / kRowPack;
  for (int j = lane; j < head; j += lanes) one(j);
  for (int p = lane; p < packs; p += lanes) pack(head + p * kRowPack);
  for (int j = head + packs * kRowPack + lane; j < n; j += lanes) one(j);
}

/// What one of the lanes brings to a reduction: term(a[j], b[j], …) of its elements.
template <int lanes, bool packed, class Combine, class Term, class... Arrays>
PIPEWRIGHT_HOST_DEVICE inline float lane_part(int lane, int n, float start, Combine combine,
                                              Term term, const Arrays*... arrays) {
  float part = start;
  const auto one = [&](int j) { part = combine(part, term(arrays[j]...)); };
  if constexpr (packed) {
    const auto pack = [&](const Loaded<Arrays, kRowPack>&... loaded) {
      for (int k = 0; k < kRowPack; ++k) part = combine(part, term(loaded[k]...));
    };
    in_packs<lanes>(
        lane, n, one, [&](int j) { pack(Loaded<Arrays, kRowPack>(arrays + j)...); }, arrays...);
  } else {
    for (int j = lane; j < n; j += lanes) one(j);
  }
  return part;
}

/// The same of term(j), a place after another.
template <int lanes, class Combine, class Term>
PIPEWRIGHT_HOST_DEVICE inline float lane_places(int lane, int n, float start, Combine combine,
                                                Term term) {
  float part = start;
  for (int j = lane; j < n; j += lanes) part = combine(part, term(j));
  return part;
}

/// What one of the lanes does of to[j] = f(a[j], b[j], …); `to` may be one of the arrays.
template <int lanes, bool packed, class F, class To, class... Arrays>
PIPEWRIGHT_HOST_DEVICE inline void lane_map(int lane, int n, F f, To* to, const Arrays*... arrays) {
  const auto one = [&](int j) { to[j] = f(arrays[j]...); };
  if constexpr (packed) {
    const auto pack = [&](int j, const Loaded<Arrays, kRowPack>&... loaded) {
      Loaded<To, kRowPack> made;
      for (int k = 0; k < kRowPack; ++k) made[k] = f(loaded[k]...);
      made.store(to + j);
    };
    in_packs<lanes>(
        lane, n, one, [&](int j) { pack(j, Loaded<Arrays, kRowPack>(arrays + j)...); },
        static_cast<const To*>(to), arrays...);
  } else {
    for (int j = lane; j < n; j += lanes) one(j);
  }
}

}  // namespace pipewright::exec::cuda
