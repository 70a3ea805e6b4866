// What a kernel does for one element where ranks divide sequences: as
// exec/devices/cuda/elements.hpp has it.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "exec/base/host_device.hpp"
#include "exec/devices/cuda/packs.hpp"

namespace pipewright::exec::cuda {

/// Element (row, column): to = factor · from.
template <class T>
struct CopyColumns {
  std::size_t width, from_stride, to_stride;
  float factor;
  const T* from;
  T* to;
  bool in_packs;  // all rows of both begin packs, and end them

  static constexpr int kPack = kPackOf<T>;
  /// With `in_packs` as these arrays have it.
  static CopyColumns of(std::size_t width, float factor, const T* from, std::size_t from_stride,
                        T* to, std::size_t to_stride) {
    const auto fits = [](std::size_t numbers) { return numbers % kPack == 0; };
    const auto begins = [](const T* at) {
      return reinterpret_cast<std::uintptr_t>(at) % kPackBytes == 0;
    };
    return {width,
            from_stride,
            to_stride,
            factor,
            from,
            to,
            fits(width) && fits(from_stride) && fits(to_stride) && begins(from) && begins(to)};
  }
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const std::size_t row = i / width, column = i % width;
    to[row * to_stride + column] = factor * from[row * from_stride + column];
  }
  PIPEWRIGHT_HOST_DEVICE void pack(std::size_t i) const {
    if (!in_packs) return one_by_one(*this, i);
    const std::size_t row = i / width, column = i % width;
    Loaded<T, kPack> all(from + row * from_stride + column);
    for (int k = 0; k < kPack; ++k) all[k] = factor * all[k];
    all.store(to + row * to_stride + column);
  }
};

/// What a row adds to the loss, from what the losses' kernels leave of it (module_api.h): the
/// logarithm is taken in double, as the host takes it.
PIPEWRIGHT_HOST_DEVICE inline double loss_of_row(const float* facts, int of_row) {
  if (of_row == 1) return static_cast<double>(facts[0]);
  return std::log(static_cast<double>(facts[1])) +
         (static_cast<double>(facts[0]) - static_cast<double>(facts[2]));
}

struct LossesOfRows {
  int of_row;
  const float* facts;
  double* losses;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t row) const {
    losses[row] = loss_of_row(facts + row * static_cast<std::size_t>(of_row), of_row);
  }
};

}  // namespace pipewright::exec::cuda
