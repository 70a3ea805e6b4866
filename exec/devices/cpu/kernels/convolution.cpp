// Convolution as matrix products of patches laid out as columns.
#include <algorithm>
#include <cstring>

#include "core/model/image.hpp"
#include "exec/devices/cpu/kernels/gemm.hpp"
#include "exec/layers/image_ops.hpp"

namespace pipewright::exec {
namespace {

std::size_t size(int a, int b = 1, int c = 1) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b) * static_cast<std::size_t>(c);
}

/// How the work is cut: `together` images of one group at a time.
struct Cut {
  explicit Cut(const ConvShape& s)
      : out(s.out()),
        channels(s.in.channels / s.groups),
        filters(s.filters / s.groups),
        patch(s.patch()),
        pixels(out.pixels()),
        together(s.together()),
        plain(s.window == Window{} && together == 1) {}

  std::size_t columns_floats() const { return size(patch, pixels, together); }

  ImageShape out;
  int channels, filters, patch, pixels;
  int together;
  bool plain;  // the columns of an image are the image
};

/// The places along one side at which the offset `at` of the window lies inside of the image.
struct Inside {
  Inside(int places, int length, int at, const Window& w) {
    const int shift = w.padding - at;
    first = std::min(places, std::max(0, (shift + w.stride - 1) / w.stride));
    const int last = length - 1 + shift;  // of the numbers, in steps of the stride
    end = last < 0 ? first : std::clamp(last / w.stride + 1, first, places);
  }
  int first = 0, end = 0;
};

/// Calls row(number of the patch's row, y of the image, y of the output, columns inside, x of the
/// image at the first of these) for each piece of a channel group that lies side by side; outside(
/// number, y of the output) for rows of the output that see nothing.
template <class Row, class Outside>
void each_row(const ConvShape& s, const Cut& cut, Row row, Outside outside) {
  const Window& w = s.window;
  for (int c = 0, k = 0; c < cut.channels; ++c) {
    for (int ky = 0; ky < w.size; ++ky) {
      for (int kx = 0; kx < w.size; ++kx, ++k) {
        const Inside across(cut.out.width, s.in.width, kx, w);
        const int x = across.first * w.stride + kx - w.padding;
        for (int oy = 0; oy < cut.out.height; ++oy) {
          const int y = oy * w.stride + ky - w.padding;
          if (y < 0 || y >= s.in.height || across.first == across.end) {
            outside(k, oy);
          } else {
            row(k, (c * s.in.height + y) * s.in.width + x, oy, across);
          }
        }
      }
    }
  }
}

/// columns[patch][pixels]: what each place of the output sees; `stride` floats from row to row.
void unfold(const ConvShape& s, const Cut& cut, const float* image, float* columns, int stride) {
  const int width = cut.out.width, step = s.window.stride;
  const auto row_of = [&](int k, int oy) { return columns + size(k, stride) + size(oy, width); };
  each_row(
      s, cut,
      [&](int k, int at, int oy, const Inside& across) {
        float* const to = row_of(k, oy);
        const float* from = image + at;
        std::fill(to, to + across.first, 0.0F);
        if (step == 1) {
          std::copy_n(from, across.end - across.first, to + across.first);
        } else {
          for (int ox = across.first; ox < across.end; ++ox, from += step) to[ox] = *from;
        }
        std::fill(to + across.end, to + width, 0.0F);
      },
      [&](int k, int oy) {
        float* const to = row_of(k, oy);
        std::fill(to, to + width, 0.0F);
      });
}

/// The other way: adds what the columns hold to the image that they see.
void fold(const ConvShape& s, const Cut& cut, const float* columns, int stride, float* image) {
  const int width = cut.out.width, step = s.window.stride;
  each_row(
      s, cut,
      [&](int k, int at, int oy, const Inside& across) {
        const float* const from = columns + size(k, stride) + size(oy, width);
        float* to = image + at;
        for (int ox = across.first; ox < across.end; ++ox, to += step) *to += from[ox];
      },
      [](int, int) {});
}

/// Where an image's numbers of one group begin.
std::size_t place_in(const ConvShape& s, const Cut& cut, int image, int group) {
  return size(image, s.in.numbers()) + size(group, cut.channels, s.in.pixels());
}
std::size_t place_out(const ConvShape& s, const Cut& cut, int image, int group) {
  return size(image, s.filters, cut.pixels) + size(group, cut.filters, cut.pixels);
}

/// Between [filters][images][pixels], as a product has it, and [image][filter][pixel].
template <class Copy>
void each_plane(const ConvShape& s, const Cut& cut, int first, int count, int group, Copy copy) {
  for (int i = 0; i < count; ++i) {
    for (int f = 0; f < cut.filters; ++f) {
      copy(place_out(s, cut, first + i, group) + size(f, cut.pixels),
           (size(f, count) + size(i)) * size(cut.pixels));
    }
  }
}

/// Calls work(first image, how many, group) for all of it.
template <class Work>
void each_product(const ConvShape& s, const Cut& cut, Work work) {
  for (int first = 0; first < s.images; first += cut.together) {
    const int count = std::min(cut.together, s.images - first);
    for (int group = 0; group < s.groups; ++group) work(first, count, group);
  }
}

void unfold_all(const ConvShape& s, const Cut& cut, const float* x, int first, int count, int group,
                float* columns) {
  for (int i = 0; i < count; ++i) {
    unfold(s, cut, x + place_in(s, cut, first + i, group), columns + size(i, cut.pixels),
           count * cut.pixels);
  }
}

/// What the filters see of some images, side by side: the images themselves where that is the same.
const float* unfolded(const ConvShape& s, const Cut& cut, const float* x, int first, int count,
                      int group, float* scratch) {
  if (cut.plain) return x + place_in(s, cut, first, group);
  unfold_all(s, cut, x, first, count, group, scratch);
  return scratch;
}

/// The gradients of some images side by side: themselves if it is one.
const float* gathered(const ConvShape& s, const Cut& cut, const float* dy, int first, int count,
                      int group, float* scratch) {
  if (count == 1) return dy + place_out(s, cut, first, group);
  each_plane(s, cut, first, count, group, [&](std::size_t image, std::size_t product) {
    std::copy_n(dy + image, cut.pixels, scratch + product);
  });
  return scratch;
}

}  // namespace

void conv2d_forward(const ConvShape& s, const float* x, const float* w, float* y, float* scratch) {
  const Cut cut(s);
  each_product(s, cut, [&](int first, int count, int group) {
    const int columns = count * cut.pixels;
    const float* const seen = unfolded(s, cut, x, first, count, group, scratch);
    float* const product =
        count == 1 ? y + place_out(s, cut, first, group) : scratch + cut.columns_floats();
    cpu::gemm({cut.filters, columns, cut.patch}, 1.0F,
              {w + size(group, cut.filters, cut.patch), cut.patch}, {seen, columns}, 0.0F, product,
              columns, s.numerics);
    if (count == 1) return;
    each_plane(s, cut, first, count, group, [&](std::size_t image, std::size_t at) {
      std::copy_n(product + at, cut.pixels, y + image);
    });
  });
}

void conv2d_backward_input(const ConvShape& s, const float* dy, const float* w, float* dx,
                           float* scratch) {
  const Cut cut(s);
  if (!cut.plain) std::fill_n(dx, size(s.images, s.in.numbers()), 0.0F);
  each_product(s, cut, [&](int first, int count, int group) {
    const int columns = count * cut.pixels;
    const float* const gradient =
        gathered(s, cut, dy, first, count, group, scratch + cut.columns_floats());
    float* const seen = cut.plain ? dx + place_in(s, cut, first, group) : scratch;
    cpu::gemm({cut.patch, columns, cut.filters}, 1.0F,
              {w + size(group, cut.filters, cut.patch), cut.patch, true}, {gradient, columns}, 0.0F,
              seen, columns, s.numerics);
    if (cut.plain) return;
    for (int i = 0; i < count; ++i) {
      fold(s, cut, scratch + size(i, cut.pixels), columns, dx + place_in(s, cut, first + i, group));
    }
  });
}

void conv2d_backward_weight(const ConvShape& s, const float* x, const float* dy, float* dw,
                            float* scratch) {
  const Cut cut(s);
  each_product(s, cut, [&](int first, int count, int group) {
    const int columns = count * cut.pixels;
    const float* const seen = unfolded(s, cut, x, first, count, group, scratch);
    const float* const gradient =
        gathered(s, cut, dy, first, count, group, scratch + cut.columns_floats());
    cpu::gemm({cut.filters, cut.patch, columns}, 1.0F, {gradient, columns}, {seen, columns, true},
              1.0F, dw + size(group, cut.filters, cut.patch), cut.patch, s.numerics);
  });
}

}  // namespace pipewright::exec
