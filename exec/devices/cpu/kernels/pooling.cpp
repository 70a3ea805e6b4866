// Pooling: each channel of each image by itself.
#include <algorithm>

#include "core/model/image.hpp"
#include "exec/layers/image_ops.hpp"

namespace pipewright::exec {
namespace {

/// What a window sees of an image: rows [y, y_end) and columns [x, x_end).
struct Sight {
  int y = 0, y_end = 0, x = 0, x_end = 0;
};

/// Calls place(number of the plane's place in the output, what it sees) for one plane.
template <class Place>
void each_place(const PoolShape& s, const ImageShape& out, Place place) {
  const Window& w = s.window;
  for (int oy = 0, at = 0; oy < out.height; ++oy) {
    const int y = oy * w.stride - w.padding;
    for (int ox = 0; ox < out.width; ++ox, ++at) {
      const int x = ox * w.stride - w.padding;
      place(at, Sight{std::max(y, 0), std::min(y + w.size, s.in.height), std::max(x, 0),
                      std::min(x + w.size, s.in.width)});
    }
  }
}

/// Calls plane(where it begins in the input, and in the output) for each channel of each image.
template <class Plane>
void each_plane(const PoolShape& s, const ImageShape& out, Plane plane) {
  const std::size_t planes =
      static_cast<std::size_t>(s.images) * static_cast<std::size_t>(s.in.channels);
  for (std::size_t i = 0; i < planes; ++i) {
    plane(i * static_cast<std::size_t>(s.in.pixels()), i * static_cast<std::size_t>(out.pixels()));
  }
}

}  // namespace

void max_pool_forward(const PoolShape& s, const float* x, float* y, std::int32_t* places) {
  const ImageShape out = s.out();
  each_plane(s, out, [&](std::size_t before, std::size_t after) {
    const float* const from = x + before;
    each_place(s, out, [&](int at, const Sight& sight) {
      int best = sight.y * s.in.width + sight.x;
      for (int row = sight.y; row < sight.y_end; ++row) {
        for (int i = row * s.in.width + sight.x; i < row * s.in.width + sight.x_end; ++i) {
          if (from[i] > from[best]) best = i;
        }
      }
      y[after + static_cast<std::size_t>(at)] = from[best];
      places[after + static_cast<std::size_t>(at)] = best;
    });
  });
}

void max_pool_backward_input(const PoolShape& s, const std::int32_t* places, const float* dy,
                             float* dx) {
  const ImageShape out = s.out();
  each_plane(s, out, [&](std::size_t before, std::size_t after) {
    std::fill_n(dx + before, s.in.pixels(), 0.0F);
    for (std::size_t at = after; at < after + static_cast<std::size_t>(out.pixels()); ++at) {
      dx[before + static_cast<std::size_t>(places[at])] += dy[at];
    }
  });
}

void average_pool_forward(const PoolShape& s, const float* x, float* y) {
  const ImageShape out = s.out();
  const float share = 1.0F / static_cast<float>(s.window.size * s.window.size);
  each_plane(s, out, [&](std::size_t before, std::size_t after) {
    const float* const from = x + before;
    each_place(s, out, [&](int at, const Sight& sight) {
      float sum = 0;
      for (int row = sight.y; row < sight.y_end; ++row) {
        for (int column = sight.x; column < sight.x_end; ++column) {
          sum += from[row * s.in.width + column];
        }
      }
      y[after + static_cast<std::size_t>(at)] = sum * share;
    });
  });
}

void average_pool_backward_input(const PoolShape& s, const float* dy, float* dx) {
  const ImageShape out = s.out();
  const float share = 1.0F / static_cast<float>(s.window.size * s.window.size);
  each_plane(s, out, [&](std::size_t before, std::size_t after) {
    std::fill_n(dx + before, s.in.pixels(), 0.0F);
    float* const to = dx + before;
    each_place(s, out, [&](int at, const Sight& sight) {
      const float part = dy[after + static_cast<std::size_t>(at)] * share;
      for (int row = sight.y; row < sight.y_end; ++row) {
        for (int column = sight.x; column < sight.x_end; ++column) {
          to[row * s.in.width + column] += part;
        }
      }
    });
  });
}

}  // namespace pipewright::exec
