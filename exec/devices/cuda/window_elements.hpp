// What a kernel does for one element where a window moves over images: patches as columns and back,
// and pooling. A number that several places of the output see is a sum over these, in the order of
// exec/devices/cpu/kernels/convolution.cpp and pooling.cpp, so that nobody adds to what another
// element has. Plain data; elements may be done at any time, by any thread. T is float or Bfloat16;
// all of it is computed in float.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/base/host_device.hpp"
#include "exec/devices/cuda/image_api.h"

namespace pipewright::exec::cuda {

/// A number's place: of a plane (a channel of an image), row and column.
struct PixelPlace {
  PIPEWRIGHT_HOST_DEVICE PixelPlace(std::size_t i, int height, int width)
      : plane(i / (static_cast<std::size_t>(height) * static_cast<std::size_t>(width))),
        y(static_cast<int>(i / static_cast<std::size_t>(width) % static_cast<std::size_t>(height))),
        x(static_cast<int>(i % static_cast<std::size_t>(width))) {}
  std::size_t plane;
  int y, x;
};

/// Numbers of a plane, before the window and behind it.
PIPEWRIGHT_HOST_DEVICE inline std::size_t pixels_in(const pipewright_cuda_window& w) {
  return static_cast<std::size_t>(w.height) * static_cast<std::size_t>(w.width);
}
PIPEWRIGHT_HOST_DEVICE inline std::size_t pixels_out(const pipewright_cuda_window& w) {
  return static_cast<std::size_t>(w.out_height) * static_cast<std::size_t>(w.out_width);
}

/// Some indices in a row along one side.
struct Stretch {
  int begin, end;
};

/// What a window at a place of the output sees of a side of that length.
PIPEWRIGHT_HOST_DEVICE inline Stretch seen_from(int place, int length,
                                                const pipewright_cuda_window& w) {
  const int first = place * w.stride - w.padding, end = first + w.size;
  return {first < 0 ? 0 : first, end < length ? end : length};
}

/// The places of the output, of so many, whose windows see a number of the side.
PIPEWRIGHT_HOST_DEVICE inline Stretch seeing(int at, int places, const pipewright_cuda_window& w) {
  const int last = (at + w.padding) / w.stride;
  const int before = at + w.padding - w.size;  // the end of the last window that does not
  const int first = before < 0 ? 0 : before / w.stride + 1;
  return {first, last + 1 < places ? last + 1 : places};
}

/// Number (row, image, place) of the columns, places side by side.
template <class T>
struct Unfold {
  pipewright_cuda_window w;
  pipewright_cuda_columns where;
  const T* x;
  T* columns;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const PixelPlace out(i, w.out_height, w.out_width);
    const auto images = static_cast<std::size_t>(w.images);
    const std::size_t image = out.plane % images, row = out.plane / images;
    const auto size = static_cast<std::size_t>(w.size);
    const std::size_t channel = row / (size * size);
    const int at_y = out.y * w.stride - w.padding + static_cast<int>(row / size % size);
    const int at_x = out.x * w.stride - w.padding + static_cast<int>(row % size);
    const bool is_inside = at_y >= 0 && at_y < w.height && at_x >= 0 && at_x < w.width;
    const T* const plane =
        x + (image * static_cast<std::size_t>(w.channels) + channel) * pixels_in(w);
    T* const to = columns + row * static_cast<std::size_t>(where.row_step) +
                  image * static_cast<std::size_t>(where.image_step) + i % pixels_out(w);
    *to = is_inside ? static_cast<float>(plane[static_cast<std::ptrdiff_t>(at_y) * w.width + at_x])
                    : 0.0F;
  }
};

/// A number of the image: what the rows of its patches hold of it.
template <class T>
struct Fold {
  pipewright_cuda_window w;
  pipewright_cuda_columns where;
  const T* columns;
  T* dx;
  /// Where the window stands if its number k along a side is this one; -1: nowhere.
  PIPEWRIGHT_HOST_DEVICE int place_of(int at, int k, int places) const {
    const int first = at + w.padding - k;
    if (first < 0 || first % w.stride != 0 || first / w.stride >= places) return -1;
    return first / w.stride;
  }
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const PixelPlace in(i, w.height, w.width);
    const auto channels = static_cast<std::size_t>(w.channels);
    const std::size_t image = in.plane / channels, channel = in.plane % channels;
    const auto size = static_cast<std::size_t>(w.size);
    const T* row = columns + image * static_cast<std::size_t>(where.image_step) +
                   channel * size * size * static_cast<std::size_t>(where.row_step);
    float sum = 0.0F;
    for (int ky = 0; ky < w.size; ++ky) {
      const int out_y = place_of(in.y, ky, w.out_height);
      for (int kx = 0; kx < w.size; ++kx, row += where.row_step) {
        const int out_x = place_of(in.x, kx, w.out_width);
        if (out_y < 0 || out_x < 0) continue;
        sum += row[static_cast<std::ptrdiff_t>(out_y) * w.out_width + out_x];
      }
    }
    dx[i] = sum;
  }
};

/// A number of the output: the first of the largest that its window sees, and where that is.
template <class T>
struct MaxPoolForward {
  pipewright_cuda_window w;
  const T* x;
  T* y;
  std::int32_t* places;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const PixelPlace out(i, w.out_height, w.out_width);
    const Stretch rows = seen_from(out.y, w.height, w), columns = seen_from(out.x, w.width, w);
    const T* const plane = x + out.plane * pixels_in(w);
    int best = rows.begin * w.width + columns.begin;
    for (int row = rows.begin; row < rows.end; ++row) {
      for (int at = row * w.width + columns.begin; at < row * w.width + columns.end; ++at) {
        if (static_cast<float>(plane[at]) > static_cast<float>(plane[best])) best = at;
      }
    }
    y[i] = plane[best];
    places[i] = best;
  }
};

template <class T>
struct MaxPoolBackwardInput {
  pipewright_cuda_window w;
  const std::int32_t* places;
  const T* dy;
  T* dx;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const PixelPlace in(i, w.height, w.width);
    const Stretch rows = seeing(in.y, w.out_height, w), columns = seeing(in.x, w.out_width, w);
    const std::size_t plane = in.plane * pixels_out(w);
    float sum = 0.0F;
    for (int row = rows.begin; row < rows.end; ++row) {
      for (int column = columns.begin; column < columns.end; ++column) {
        const std::size_t at = plane + static_cast<std::size_t>(row * w.out_width + column);
        if (places[at] == in.y * w.width + in.x) sum += dy[at];
      }
    }
    dx[i] = sum;
  }
};

/// What each place of the window counts for, also outside of the image.
PIPEWRIGHT_HOST_DEVICE inline float share_of(const pipewright_cuda_window& w) {
  return 1.0F / static_cast<float>(w.size * w.size);
}

template <class T>
struct AveragePoolForward {
  pipewright_cuda_window w;
  const T* x;
  T* y;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const PixelPlace out(i, w.out_height, w.out_width);
    const Stretch rows = seen_from(out.y, w.height, w), columns = seen_from(out.x, w.width, w);
    const T* const plane = x + out.plane * pixels_in(w);
    float sum = 0.0F;
    for (int row = rows.begin; row < rows.end; ++row) {
      for (int column = columns.begin; column < columns.end; ++column)
        sum += plane[static_cast<std::ptrdiff_t>(row) * w.width + column];
    }
    y[i] = sum * share_of(w);
  }
};

template <class T>
struct AveragePoolBackwardInput {
  pipewright_cuda_window w;
  const T* dy;
  T* dx;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const PixelPlace in(i, w.height, w.width);
    const Stretch rows = seeing(in.y, w.out_height, w), columns = seeing(in.x, w.out_width, w);
    const T* const plane = dy + in.plane * pixels_out(w);
    float sum = 0.0F;
    for (int row = rows.begin; row < rows.end; ++row) {
      for (int column = columns.begin; column < columns.end; ++column)
        sum += plane[static_cast<std::ptrdiff_t>(row) * w.out_width + column] * share_of(w);
    }
    dx[i] = sum;
  }
};

}  // namespace pipewright::exec::cuda
