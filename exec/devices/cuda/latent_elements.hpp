// What a kernel does for one element of latent attention (exec/layers/latent_ops.hpp): as
// exec/devices/cuda/elements.hpp has it. `in_packs`: all parts of all rows begin packs, and end
// them.
#pragma once

#include <cstddef>
#include <initializer_list>

#include "exec/base/host_device.hpp"
#include "exec/devices/cuda/packs.hpp"

namespace pipewright::exec::cuda {

/// Whether all of so many numbers are whole packs.
template <class T>
bool are_packs(std::initializer_list<std::size_t> numbers) {
  for (const std::size_t one : numbers)
    if (one % kPackOf<T> != 0) return false;
  return true;
}

/// Pair i of rows · heads · half: neighbours, numbers 2j and 2j + 1 of a head.
template <class T>
struct RotateNeighbours {
  std::size_t sequence, heads, half, stride, head_stride;
  bool back, in_packs;
  const float* turns;  // [sequence][2 · half]
  T* x;

  static constexpr int kPack = kPackOf<T> / 2;
  struct Place {
    T* first;
    const float* cosine;
  };
  PIPEWRIGHT_HOST_DEVICE Place place(std::size_t i) const {
    const std::size_t j = i % half, head = i / half % heads, row = i / half / heads;
    return {x + row * stride + head * head_stride + 2 * j, turns + row % sequence * 2 * half + j};
  }
  PIPEWRIGHT_HOST_DEVICE float turn_of(float sine) const { return back ? -sine : sine; }

  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const Place at = place(i);
    const float a = at.first[0], b = at.first[1];
    const float cosine = at.cosine[0], turn = turn_of(at.cosine[half]);
    at.first[0] = a * cosine - b * turn;
    at.first[1] = b * cosine + a * turn;
  }
  PIPEWRIGHT_HOST_DEVICE void pack(std::size_t i) const {
    if (!in_packs) return one_by_one(*this, i);
    const Place at = place(i);
    Loaded<T, 2 * kPack> pairs(at.first);
    const Loaded<float, kPack> cosines(at.cosine), sines(at.cosine + half);
    for (int k = 0; k < kPack; ++k) {
      const float a = pairs[2 * k], b = pairs[2 * k + 1], turn = turn_of(sines[k]);
      pairs[2 * k] = a * cosines[k] - b * turn;
      pairs[2 * k + 1] = b * cosines[k] + a * turn;
    }
    pairs.store(at.first);
  }
};

/// Element i of keys[rows][heads][plain + rotary]: of its own plain part, or of the one rotary key.
template <class T>
struct JoinKeys {
  std::size_t heads, plain, rotary, value;
  bool in_packs;
  const T *keys_values, *rotary_key;
  T* keys;

  static constexpr int kPack = kPackOf<T>;
  PIPEWRIGHT_HOST_DEVICE const T* from(std::size_t i) const {
    const std::size_t j = i % (plain + rotary), head = i / (plain + rotary);  // of all rows
    return j < plain ? keys_values + head * (plain + value) + j
                     : rotary_key + head / heads * rotary + (j - plain);
  }
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const { keys[i] = *from(i); }
  PIPEWRIGHT_HOST_DEVICE void pack(std::size_t i) const {
    if (!in_packs) return one_by_one(*this, i);
    Loaded<T, kPack> all(from(i));
    all.store(keys + i);
  }
};

/// Element (row, j): y[rows][width] += by_head[rows][heads][width], head by head.
template <class T>
struct AddHeads {
  std::size_t rows, heads, width;
  const T* by_head;
  T* y;

  static constexpr int kPack = kPackOf<T>;
  std::size_t work() const { return rows * heads * width; }
  PIPEWRIGHT_HOST_DEVICE const T* first(std::size_t i) const {
    return by_head + i / width * heads * width + i % width;
  }
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    float sum = y[i];
    const T* from = first(i);
    for (std::size_t h = 0; h < heads; ++h, from += width) sum += *from;
    y[i] = sum;
  }
  PIPEWRIGHT_HOST_DEVICE void pack(std::size_t i) const {
    const Loaded<T, kPack> before(y + i);
    float sums[kPack];
    for (int k = 0; k < kPack; ++k) sums[k] = before[k];
    const T* from = first(i);
    for (std::size_t h = 0; h < heads; ++h, from += width) {
      const Loaded<T, kPack> of_head(from);
      for (int k = 0; k < kPack; ++k) sums[k] += of_head[k];
    }
    Loaded<T, kPack> to;
    for (int k = 0; k < kPack; ++k) to[k] = sums[k];
    to.store(y + i);
  }
};

}  // namespace pipewright::exec::cuda
