// The operators of images against naive loops in double: F by value, I and W against central
// differences of those loops. Shapes go from a single number to odd ones.
#include "exec/layers/image_ops.hpp"

#include <gtest/gtest.h>

#include "tests/unit/numeric.hpp"

namespace pipewright::exec {
namespace image_ops_test {

using test::Doubles;
using test::expect_close;
using test::Floats;
using test::numeric_gradient;
using test::random_floats;
using test::widened;

constexpr double kTolerance = 2e-5;

std::size_t at4(const ImageShape& shape, int image, int c, int y, int x) {
  return static_cast<std::size_t>(((image * shape.channels + c) * shape.height + y) * shape.width +
                                  x);
}

std::size_t numbers(int images, const ImageShape& shape) {
  return static_cast<std::size_t>(images * shape.numbers());
}

/// The definition, number by number.
Doubles reference_conv(const ConvShape& s, const Doubles& x, const Doubles& w) {
  const ImageShape out = s.out();
  const int size = s.window.size, channels = s.in.channels / s.groups;
  Doubles y(numbers(s.images, out));
  for (int i = 0; i < s.images; ++i) {
    for (int f = 0; f < s.filters; ++f) {
      const int first = f / (s.filters / s.groups) * channels;
      for (int oy = 0; oy < out.height; ++oy) {
        for (int ox = 0; ox < out.width; ++ox) {
          for (int k = 0; k < s.patch(); ++k) {
            const int c = k / (size * size), ky = k / size % size, kx = k % size;
            const int iy = oy * s.window.stride + ky - s.window.padding;
            const int ix = ox * s.window.stride + kx - s.window.padding;
            if (iy < 0 || iy >= s.in.height || ix < 0 || ix >= s.in.width) continue;
            y[at4(out, i, f, oy, ox)] +=
                x[at4(s.in, i, first + c, iy, ix)] * w[static_cast<std::size_t>(f * s.patch() + k)];
          }
        }
      }
    }
  }
  return y;
}

class ConvOp : public testing::TestWithParam<ConvShape> {};

TEST_P(ConvOp, AgreesWithTheReference) {
  const ConvShape s = GetParam();
  const Floats x = random_floats(numbers(s.images, s.in), 1);
  const Floats w = random_floats(static_cast<std::size_t>(s.filters * s.patch()), 2);
  const Floats dy = random_floats(numbers(s.images, s.out()), 3);
  Floats scratch(conv2d_scratch(s), NAN);

  Floats y(dy.size(), NAN);
  conv2d_forward(s, x.data(), w.data(), y.data(), scratch.data());
  expect_close(y, reference_conv(s, widened(x), widened(w)), kTolerance, "F");

  std::fill(scratch.begin(), scratch.end(), NAN);
  Floats dx(x.size(), NAN);
  conv2d_backward_input(s, dy.data(), w.data(), dx.data(), scratch.data());
  const auto of_x = [&](const Doubles& at) { return reference_conv(s, at, widened(w)); };
  expect_close(dx, numeric_gradient(of_x, widened(x), dy), kTolerance, "I");

  std::fill(scratch.begin(), scratch.end(), NAN);
  Floats dw(w.size(), 1.0F);
  conv2d_backward_weight(s, x.data(), dy.data(), dw.data(), scratch.data());
  const auto of_w = [&](const Doubles& at) { return reference_conv(s, widened(x), at); };
  Doubles expected = numeric_gradient(of_w, widened(w), dy);
  for (double& e : expected) e += 1;
  expect_close(dw, expected, kTolerance, "W");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ConvOp,
    testing::Values(
        ConvShape{1, {1, 1, 1}, 1, {1, 1, 0}, 1}, ConvShape{2, {3, 5, 4}, 2, {1, 1, 0}, 1},
        ConvShape{3, {2, 5, 7}, 3, {3, 1, 1}, 1}, ConvShape{2, {2, 7, 6}, 3, {3, 2, 1}, 1},
        ConvShape{1, {2, 9, 8}, 2, {5, 3, 2}, 1}, ConvShape{2, {4, 4, 5}, 6, {3, 1, 1}, 2},
        ConvShape{2, {3, 4, 4}, 3, {2, 2, 0}, 3}, ConvShape{1, {1, 2, 2}, 2, {3, 1, 4}, 1},
        // Wide enough that an image stands alone; and the plain product.
        ConvShape{2, {2, 17, 18}, 2, {3, 1, 1}, 1}, ConvShape{2, {2, 16, 17}, 3, {1, 1, 0}, 1},
        ConvShape{2, {2, 33, 33}, 2, {1, 2, 0}, 1}));

TEST(ConvOp, ImagesDoNotDependOnThoseBesideThem) {
  // Three images in one product, and one at a time.
  const ConvShape together{3, {4, 6, 6}, 5, {3, 1, 1}, 1};
  ConvShape alone = together;
  alone.images = 1;
  const Floats x = random_floats(numbers(3, together.in), 4);
  const Floats w = random_floats(static_cast<std::size_t>(5 * together.patch()), 5);
  Floats scratch(conv2d_scratch(together)), y(numbers(3, together.out())), one(y.size());
  conv2d_forward(together, x.data(), w.data(), y.data(), scratch.data());
  for (std::size_t i = 0; i < 3; ++i) {
    conv2d_forward(alone, x.data() + i * numbers(1, together.in), w.data(),
                   one.data() + i * numbers(1, together.out()), scratch.data());
  }
  expect_close(y, widened(one), 1e-6, "F");
}

TEST(ChannelBiasOp, AddsToEachChannelAndSumsItsGradient) {
  const ChannelShape s{3, 5, 7};
  const Floats bias = random_floats(5, 1), x = random_floats(105, 2), dy = random_floats(105, 3);
  const auto of_bias = [&](const Doubles& at) {
    Doubles y = widened(x);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += at[i / 7 % 5];
    return y;
  };
  Floats y = x, dbias(5, 0.0F);
  channel_bias_forward(s, bias.data(), y.data());
  expect_close(y, of_bias(widened(bias)), kTolerance, "F");
  channel_bias_backward_weight(s, dy.data(), dbias.data());
  expect_close(dbias, numeric_gradient(of_bias, widened(bias), dy), kTolerance, "W");
}

struct Normalised {
  Doubles y, mean, variance;
};

Normalised reference_norm(const ChannelShape& s, const Doubles& x, const Doubles& scale,
                          const Doubles& shift) {
  Normalised result{Doubles(x.size()), {}, {}};
  const auto pixels = static_cast<std::size_t>(s.pixels);
  const auto channels = static_cast<std::size_t>(s.channels);
  const auto channel_of = [&](std::size_t i) { return i / pixels % channels; };
  for (std::size_t c = 0; c < channels; ++c) {
    double sum = 0, squares = 0;
    const double count = s.images * s.pixels;
    for (std::size_t i = 0; i < x.size(); ++i) sum += channel_of(i) == c ? x[i] : 0;
    const double mean = sum / count;
    for (std::size_t i = 0; i < x.size(); ++i) {
      squares += channel_of(i) == c ? (x[i] - mean) * (x[i] - mean) : 0;
    }
    result.mean.push_back(mean);
    result.variance.push_back(squares / count);
    const double inverse = 1 / std::sqrt(squares / count + static_cast<double>(kBatchNormEpsilon));
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (channel_of(i) == c) result.y[i] = (x[i] - mean) * inverse * scale[c] + shift[c];
    }
  }
  return result;
}

class BatchNormOp : public testing::TestWithParam<ChannelShape> {};

TEST_P(BatchNormOp, AgreesWithTheReference) {
  const ChannelShape s = GetParam();
  const auto channels = static_cast<std::size_t>(s.channels);
  const std::size_t n = channels * static_cast<std::size_t>(s.images * s.pixels);
  Floats x = random_floats(n, 1);
  for (float& v : x) v += 3.0F;  // a mean far from 0
  const Floats scale = random_floats(channels, 2), shift = random_floats(channels, 3);
  const Floats dy = random_floats(n, 4);
  const Normalised expected = reference_norm(s, widened(x), widened(scale), widened(shift));

  Floats mean(channels, NAN), variance(channels, NAN), y(n, NAN);
  batch_statistics(s, x.data(), mean.data(), variance.data());
  expect_close(mean, expected.mean, kTolerance, "mean");
  expect_close(variance, expected.variance, kTolerance, "variance");
  batch_norm_forward(s, x.data(), mean.data(), variance.data(), scale.data(), shift.data(),
                     y.data());
  expect_close(y, expected.y, kTolerance, "F");

  Floats dx(n, NAN), dscale(channels, NAN), dshift(channels, NAN);
  batch_norm_backward_input(s, x.data(), mean.data(), variance.data(), scale.data(), dy.data(),
                            dx.data(), dscale.data(), dshift.data());
  const auto of_x = [&](const Doubles& at) {
    return reference_norm(s, at, widened(scale), widened(shift)).y;
  };
  const auto of_scale = [&](const Doubles& at) {
    return reference_norm(s, widened(x), at, widened(shift)).y;
  };
  const auto of_shift = [&](const Doubles& at) {
    return reference_norm(s, widened(x), widened(scale), at).y;
  };
  expect_close(dx, numeric_gradient(of_x, widened(x), dy), 1e-4, "I");
  expect_close(dscale, numeric_gradient(of_scale, widened(scale), dy), kTolerance, "W of scale");
  expect_close(dshift, numeric_gradient(of_shift, widened(shift), dy), kTolerance, "W of shift");

  Floats in_place = dy;
  batch_norm_backward_input(s, x.data(), mean.data(), variance.data(), scale.data(),
                            in_place.data(), in_place.data(), dscale.data(), dshift.data());
  EXPECT_EQ(in_place, dx);
  batch_norm_forward(s, x.data(), mean.data(), variance.data(), scale.data(), shift.data(),
                     x.data());
  EXPECT_EQ(x, y);
}

INSTANTIATE_TEST_SUITE_P(Shapes, BatchNormOp,
                         testing::Values(ChannelShape{4, 3, 1}, ChannelShape{2, 2, 5},
                                         ChannelShape{3, 4, 19}, ChannelShape{1, 1, 33}));

class PoolOp : public testing::TestWithParam<PoolShape> {};

/// combine(so far, number) over the numbers of the image that each window sees.
template <class Combine>
Doubles reference_pool(const PoolShape& s, const Doubles& x, double start, Combine combine) {
  const ImageShape out = s.out();
  Doubles y(numbers(s.images, out), start);
  for (int i = 0; i < s.images; ++i) {
    for (int c = 0; c < out.channels; ++c) {
      for (int oy = 0; oy < out.height; ++oy) {
        for (int ox = 0; ox < out.width; ++ox) {
          for (int k = 0; k < s.window.size * s.window.size; ++k) {
            const int iy = oy * s.window.stride + k / s.window.size - s.window.padding;
            const int ix = ox * s.window.stride + k % s.window.size - s.window.padding;
            if (iy < 0 || iy >= s.in.height || ix < 0 || ix >= s.in.width) continue;
            double& value = y[at4(out, i, c, oy, ox)];
            value = combine(value, x[at4(s.in, i, c, iy, ix)]);
          }
        }
      }
    }
  }
  return y;
}

TEST_P(PoolOp, MaxAgreesWithTheReference) {
  const PoolShape s = GetParam();
  const Floats x = random_floats(numbers(s.images, s.in), 1);
  const Floats dy = random_floats(numbers(s.images, s.out()), 2);
  const auto of_x = [&](const Doubles& at) {
    return reference_pool(s, at, -1e300, [](double a, double b) { return std::max(a, b); });
  };
  Floats y(dy.size(), NAN), dx(x.size(), NAN);
  std::vector<std::int32_t> places(dy.size(), -1);
  max_pool_forward(s, x.data(), y.data(), places.data());
  expect_close(y, of_x(widened(x)), 0, "F");
  max_pool_backward_input(s, places.data(), dy.data(), dx.data());
  expect_close(dx, numeric_gradient(of_x, widened(x), dy), kTolerance, "I");
}

TEST_P(PoolOp, AverageAgreesWithTheReference) {
  const PoolShape s = GetParam();
  const Floats x = random_floats(numbers(s.images, s.in), 3);
  const Floats dy = random_floats(numbers(s.images, s.out()), 4);
  const double share = 1.0 / (s.window.size * s.window.size);
  const auto of_x = [&](const Doubles& at) {
    return reference_pool(s, at, 0, [share](double a, double b) { return a + share * b; });
  };
  Floats y(dy.size(), NAN), dx(x.size(), NAN);
  average_pool_forward(s, x.data(), y.data());
  expect_close(y, of_x(widened(x)), kTolerance, "F");
  average_pool_backward_input(s, dy.data(), dx.data());
  expect_close(dx, numeric_gradient(of_x, widened(x), dy), kTolerance, "I");
}

INSTANTIATE_TEST_SUITE_P(Shapes, PoolOp,
                         testing::Values(PoolShape{1, {1, 1, 1}, {1, 1, 0}},
                                         PoolShape{2, {3, 6, 4}, {2, 2, 0}},
                                         PoolShape{2, {2, 7, 8}, {3, 2, 1}},
                                         PoolShape{1, {2, 5, 5}, {3, 1, 1}}));

TEST(GlobalAveragePoolOp, IsTheMeanOfEachChannel) {
  const ChannelShape s{2, 3, 21};
  const Floats x = random_floats(126, 1), dy = random_floats(6, 2);
  const auto of_x = [](const Doubles& at) {
    Doubles y(6);
    for (std::size_t i = 0; i < at.size(); ++i) y[i / 21] += at[i] / 21;
    return y;
  };
  Floats y(6, NAN), dx(126, NAN);
  global_average_pool_forward(s, x.data(), y.data());
  expect_close(y, of_x(widened(x)), kTolerance, "F");
  global_average_pool_backward_input(s, dy.data(), dx.data());
  expect_close(dx, numeric_gradient(of_x, widened(x), dy), kTolerance, "I");
}

}  // namespace image_ops_test
}  // namespace pipewright::exec
