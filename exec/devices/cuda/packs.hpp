// Elements that lie beside each other, read and written 16 bytes at once: for kernels that make
// each element from those of the same place alone. A thread has a pack of kPack of them, whose
// arrays begin at 16 bytes; the last elements, which do not fill a pack, are done one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "exec/base/host_device.hpp"

namespace pipewright::exec::cuda {

inline constexpr int kPackBytes = 16;

/// n numbers, in as few loads and stores as there can be.
template <class T, int n>
class Loaded {
 public:
  Loaded() = default;
  PIPEWRIGHT_HOST_DEVICE explicit Loaded(const T* from) {
#if defined(__CUDA_ARCH__)
    for (int w = 0; w < kWords; ++w) words()[w] = reinterpret_cast<const Words*>(from)[w];
#else
    for (int k = 0; k < n; ++k) at_[k] = from[k];
#endif
  }
  PIPEWRIGHT_HOST_DEVICE void store(T* to) {
#if defined(__CUDA_ARCH__)
    // The compiler may split a plain one.
    for (int w = 0; w < kWords; ++w) __stwb(reinterpret_cast<Words*>(to) + w, words()[w]);
#else
    for (int k = 0; k < n; ++k) to[k] = at_[k];
#endif
  }
  PIPEWRIGHT_HOST_DEVICE T& operator[](int k) { return at_[k]; }
  PIPEWRIGHT_HOST_DEVICE float operator[](int k) const { return at_[k]; }

 private:
  static constexpr int kBytes = static_cast<int>(sizeof(T)) * n;
#if defined(__CUDA_ARCH__)
  using Words = std::conditional_t<kBytes % kPackBytes == 0, uint4, uint2>;
  static constexpr int kWords = kBytes / static_cast<int>(sizeof(Words));
  __device__ Words* words() { return reinterpret_cast<Words*>(at_); }
#endif

  alignas(kBytes % kPackBytes == 0 ? kPackBytes : kBytes) T at_[n];
};

/// Numbers of a pack whose widest reads and writes are of arrays of T.
template <class T>
inline constexpr int kPackOf = kPackBytes / static_cast<int>(sizeof(T));

/// The pack from element i on of a kernel whose arrays have no packs there.
template <class F>
PIPEWRIGHT_HOST_DEVICE inline void one_by_one(const F& f, std::size_t i) {
  for (int k = 0; k < F::kPack; ++k) f(i + static_cast<std::size_t>(k));
}

/// Without packs, for arrays that begin anywhere.
template <class F>
struct OneByOne {
  F f;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const { f(i); }
};

inline bool begins_a_pack(const void* array) {
  return reinterpret_cast<std::uintptr_t>(array) % kPackBytes == 0;
}

template <class... Arrays>
bool begin_packs(const Arrays*... arrays) {
  return (begins_a_pack(arrays) && ...);
}

struct Same {
  PIPEWRIGHT_HOST_DEVICE float operator()(float x) const { return x; }
};

/// y[i] = f(x[i]); y may be x.
template <class X, class Y, class F>
struct Map {
  const X* x;
  Y* y;
  F f;

  static constexpr int kPack = kPackOf<Y>;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const { y[i] = f(x[i]); }
  PIPEWRIGHT_HOST_DEVICE void pack(std::size_t i) const {
    const Loaded<X, kPack> from(x + i);
    Loaded<Y, kPack> to;
    for (int k = 0; k < kPack; ++k) to[k] = f(from[k]);
    to.store(y + i);
  }
};

/// y[i] = f(a[i], b[i]); y may be either.
template <class A, class B, class Y, class F>
struct Map2 {
  const A* a;
  const B* b;
  Y* y;
  F f;

  static constexpr int kPack = kPackOf<Y>;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const { y[i] = f(a[i], b[i]); }
  PIPEWRIGHT_HOST_DEVICE void pack(std::size_t i) const {
    const Loaded<A, kPack> left(a + i);
    const Loaded<B, kPack> right(b + i);
    Loaded<Y, kPack> to;
    for (int k = 0; k < kPack; ++k) to[k] = f(left[k], right[k]);
    to.store(y + i);
  }
};

/// Where a thread that goes through rows of `width` numbers is; dividing costs more than loading.
struct PlaceInRow {
  std::size_t row, column, width;

  PIPEWRIGHT_HOST_DEVICE PlaceInRow(std::size_t i, std::size_t of_row)
      : row(i / of_row), column(i % of_row), width(of_row) {}
  PIPEWRIGHT_HOST_DEVICE void next() {
    if (++column < width) return;
    column = 0;
    ++row;
  }
};

}  // namespace pipewright::exec::cuda
