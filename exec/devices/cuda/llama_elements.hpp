// As exec/devices/cuda/elements.hpp, for layers in Llama's style: what a kernel does for one
// element of a gated activation, and for one pair of numbers that rotary positions turn.
#pragma once

#include <cstddef>

#include "exec/base/host_device.hpp"
#include "exec/devices/cuda/elements.hpp"
#include "exec/devices/cuda/packs.hpp"

namespace pipewright::exec::cuda {

/// Element i of y[rows][width], from x[rows][2 · width].
template <class T>
struct SwigluForward {
  std::size_t width;
  const T* x;
  T* y;

  PIPEWRIGHT_HOST_DEVICE static float of(float gate, float up) {
    return gate * Sigmoid<T>::of_negative(-gate) * up;
  }
  static constexpr int kPack = kPackOf<T>;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const T* const gate = x + i + i / width * width;
    y[i] = of(gate[0], gate[width]);
  }
  PIPEWRIGHT_HOST_DEVICE void pack(std::size_t i) const {
    if (width % kPack != 0) return one_by_one(*this, i);
    const T* const gate = x + i + i / width * width;
    const Loaded<T, kPack> gates(gate), ups(gate + width);
    Loaded<T, kPack> to;
    for (int k = 0; k < kPack; ++k) to[k] = of(gates[k], ups[k]);
    to.store(y + i);
  }
};

/// dx[rows][2 · width], from element i of dy[rows][width].
template <class T>
struct SwigluBackwardInput {
  std::size_t width;
  const T *x, *dy;
  T* dx;

  PIPEWRIGHT_HOST_DEVICE static float of_gate(float gate, float up, float d) {
    const float s = Sigmoid<T>::of_negative(-gate);
    return d * up * (s + gate * s * (1.0F - s));
  }
  PIPEWRIGHT_HOST_DEVICE static float of_up(float gate, float d) {
    return d * (gate * Sigmoid<T>::of_negative(-gate));
  }
  static constexpr int kPack = kPackOf<T>;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const std::size_t at = i + i / width * width;
    const float gate = x[at], up = x[at + width], d = dy[i];
    dx[at] = of_gate(gate, up, d);
    dx[at + width] = of_up(gate, d);
  }
  PIPEWRIGHT_HOST_DEVICE void pack(std::size_t i) const {
    if (width % kPack != 0) return one_by_one(*this, i);
    const std::size_t at = i + i / width * width;
    const Loaded<T, kPack> gates(x + at), ups(x + at + width), ds(dy + i);
    Loaded<T, kPack> dgates, dups;
    for (int k = 0; k < kPack; ++k) {
      dgates[k] = of_gate(gates[k], ups[k], ds[k]);
      dups[k] = of_up(gates[k], ds[k]);
    }
    dgates.store(dx + at);
    dups.store(dx + at + width);
  }
};

/// Pair i of rows · heads · half: numbers j and j + half of a head.
template <class T>
struct Rotate {
  std::size_t sequence, heads, half, stride;
  bool back;
  const float* turns;  // [sequence][2 · half]
  T* x;

  struct Place {
    T* first;
    const float* cosine;
  };
  PIPEWRIGHT_HOST_DEVICE Place place(std::size_t i) const {
    const std::size_t j = i % half, head = i / half % heads, row = i / half / heads;
    return {x + row * stride + head * 2 * half + j, turns + row % sequence * 2 * half + j};
  }
  PIPEWRIGHT_HOST_DEVICE float turn_of(float sine) const { return back ? -sine : sine; }

  static constexpr int kPack = kPackOf<T>;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const Place at = place(i);
    const float a = at.first[0], b = at.first[half];
    const float cosine = at.cosine[0], turn = turn_of(at.cosine[half]);
    at.first[0] = a * cosine - b * turn;
    at.first[half] = b * cosine + a * turn;
  }
  PIPEWRIGHT_HOST_DEVICE void pack(std::size_t i) const {
    if (half % kPack != 0 || stride % kPack != 0) return one_by_one(*this, i);
    const Place at = place(i);
    Loaded<T, kPack> a(at.first), b(at.first + half);
    const Loaded<float, kPack> cosines(at.cosine), sines(at.cosine + half);
    for (int k = 0; k < kPack; ++k) {
      const float first = a[k], second = b[k], turn = turn_of(sines[k]);
      a[k] = first * cosines[k] - second * turn;
      b[k] = second * cosines[k] + first * turn;
    }
    a.store(at.first);
    b.store(at.first + half);
  }
};

}  // namespace pipewright::exec::cuda
