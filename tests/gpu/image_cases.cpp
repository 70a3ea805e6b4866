// The kernels of image models: in exact numerics the CPU's bits, in the others within rounding of
// them, and in bfloat16 the floats of the fast table, rounded once. Convolutions through the
// operators of a queue, whose products are part of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "exec/devices/cuda/bfloat16.hpp"
#include "exec/devices/cuda/queue_ops.hpp"
#include "exec/layers/image_ops.hpp"
#include "tests/support/cuda_kernel_fixture.hpp"

namespace pipewright::tests {
namespace {

using exec::ChannelShape;
using exec::ConvShape;
using exec::PoolShape;
using exec::cuda::Bfloat16;
using exec::cuda::Precision;

std::size_t numbers(int images, const ImageShape& shape) {
  return product(images, shape.numbers());
}
std::size_t numbers(const ChannelShape& s) { return product(s.images * s.channels, s.pixels); }

/// Relative to the largest number.
void expect_near(const Floats& found, const Floats& expected, float most, const char* what) {
  ASSERT_EQ(found.size(), expected.size());
  float largest = 0, apart = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_FALSE(std::isnan(found[i])) << what << ", element " << i;
    largest = std::max(largest, std::fabs(expected[i]));
    apart = std::max(apart, std::fabs(found[i] - expected[i]));
  }
  EXPECT_LE(apart, most * largest) << what;
}

class CudaImages : public CudaKernels {
 protected:
  const pipewright_cuda_image_kernels& exact() const { return cuda_->kernels.images; }
  const pipewright_cuda_image_kernels& fast() const { return cuda_->fast.images; }
  const pipewright_cuda_image_kernels& bf16() const { return cuda_->bf16.images; }
  float* empty(std::size_t n) { return up(Floats(n, NAN)); }
};

// --- Convolution ---

/// Whole images, borders, strides that leave some of the image out, groups, and many small images,
/// which a CPU puts side by side.
const ConvShape kConvolutions[] = {
    {.images = 1, .in = {1, 1, 1}, .filters = 1, .window = {1, 1, 0}},
    {.images = 3, .in = {4, 6, 5}, .filters = 6, .window = {3, 1, 1}},
    {.images = 2, .in = {3, 17, 16}, .filters = 5, .window = {7, 2, 3}},
    {.images = 5, .in = {8, 4, 4}, .filters = 12, .window = {1, 1, 0}},
    {.images = 2, .in = {8, 20, 20}, .filters = 4, .window = {1, 1, 0}},
    {.images = 4, .in = {8, 7, 9}, .filters = 8, .window = {1, 2, 0}},
    {.images = 3, .in = {6, 9, 9}, .filters = 12, .window = {3, 2, 1}, .groups = 3},
    {.images = 2, .in = {6, 8, 8}, .filters = 6, .window = {3, 1, 1}, .groups = 6},
    {.images = 2, .in = {2, 3, 3}, .filters = 3, .window = {3, 1, 2}},
};

struct Convolved {
  Floats y, dx, dw;
};

Convolved convolved_by_cpu(ConvShape s, const Floats& x, const Floats& w, const Floats& dy,
                           const Floats& before) {
  s.numerics = exec::Numerics::Exact;
  Floats scratch(exec::conv2d_scratch(s));
  Convolved all{Floats(dy.size()), Floats(x.size()), before};
  exec::conv2d_forward(s, x.data(), w.data(), all.y.data(), scratch.data());
  exec::conv2d_backward_input(s, dy.data(), w.data(), all.dx.data(), scratch.data());
  exec::conv2d_backward_weight(s, x.data(), dy.data(), all.dw.data(), scratch.data());
  return all;
}

TEST_F(CudaImages, ConvolutionsHaveTheCpusBits) {
  for (const ConvShape& s : kConvolutions) {
    const Floats x = random_floats(numbers(s.images, s.in), 1),
                 w = random_floats(product(s.filters, s.patch()), 2),
                 dy = random_floats(numbers(s.images, s.out()), 3),
                 before = random_floats(w.size(), 4);
    for (const auto& [adds, one_by_one] :
         {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
      const Convolved expected =
          convolved_by_cpu(s, x, w, dy, adds ? before : Floats(w.size(), 0.0F));
      for (const Precision precision : {Precision::Exact, Precision::Float32}) {
        SCOPED_TRACE(testing::Message() << "image of " << s.in.height << " with " << s.window.size
                                        << " and groups " << s.groups);
        exec::cuda::Queue queue(*cuda_, {0, nullptr, precision});
        exec::cuda::UnwrittenGradients unwritten;
        exec::cuda::QueueOps ops(queue, unwritten);
        exec::cuda::QueueImageOps alone(queue, unwritten, 1);  // without room for two images
        float *const y = empty(dy.size()), *const dx = empty(x.size()), *const dw = up(before);
        if (!adds) unwritten.add({dw, w.size()});
        exec::ImageOps& images = one_by_one ? alone : ops.images();
        images.conv2d_forward(s, up(x), up(w), y);
        images.conv2d_backward_input(s, up(dy), up(w), dx);
        images.conv2d_backward_weight(s, up(x), up(dy), dw);
        queue.finish(queue.record(queue.computing()), {});
        const auto expect = [&](const Floats& found, const Floats& wanted, const char* what) {
          precision == Precision::Exact ? expect_same_bits(found, wanted, what)
                                        : expect_near(found, wanted, 2e-6F, what);
        };
        expect(down(y, dy.size()), expected.y, "F");
        expect(down(dx, x.size()), expected.dx, "I");
        expect(down(dw, w.size()), expected.dw, "W");
      }
    }
  }
}

// --- Channels ---

/// One number, planes that are no whole packs, and large ones.
constexpr ChannelShape kChannels[] = {{1, 1, 1}, {3, 5, 1}, {4, 3, 49}, {2, 7, 256}, {2, 2, 1500}};

struct BatchNormed {
  Floats mean, variance, y, dx, dscale, dshift;
};

BatchNormed normed_by_cpu(const ChannelShape& s, const Floats& x, const Floats& scale,
                          const Floats& shift, const Floats& dy) {
  const auto channels = static_cast<std::size_t>(s.channels);
  BatchNormed all{Floats(channels), Floats(channels), Floats(x.size()),
                  Floats(x.size()), Floats(channels), Floats(channels)};
  exec::batch_statistics(s, x.data(), all.mean.data(), all.variance.data());
  exec::batch_norm_forward(s, x.data(), all.mean.data(), all.variance.data(), scale.data(),
                           shift.data(), all.y.data());
  exec::batch_norm_backward_input(s, x.data(), all.mean.data(), all.variance.data(), scale.data(),
                                  dy.data(), all.dx.data(), all.dscale.data(), all.dshift.data());
  return all;
}

TEST_F(CudaImages, BatchNormsHaveTheCpusBits) {
  for (const ChannelShape& s : kChannels) {
    SCOPED_TRACE(s.pixels);
    const auto channels = static_cast<std::size_t>(s.channels);
    const std::size_t n = numbers(s);
    const Floats x = random_floats(n, 1, 5.0F), dy = random_floats(n, 2),
                 scale = random_floats(channels, 3), shift = random_floats(channels, 4);
    const BatchNormed expected = normed_by_cpu(s, x, scale, shift, dy);
    const pipewright_cuda_channels shape{s.images, s.channels, s.pixels};
    for (const auto* table : {&exact(), &fast()}) {
      const auto expect = [&](const Floats& found, const Floats& wanted, const char* what) {
        table == &exact() ? expect_same_bits(found, wanted, what)
                          : expect_near(found, wanted, 2e-5F, what);
      };
      float* const scratch = empty(PIPEWRIGHT_CUDA_CHANNEL_WORDS(s.images, s.channels));
      float *const mean = empty(channels), *const variance = empty(channels), *const y = empty(n);
      const float *const at_x = up(x), *const at_scale = up(scale);
      done(table->batch_statistics(stream(), &shape, at_x, scratch, mean, variance));
      expect(down(mean, channels), expected.mean, "means");
      expect(down(variance, channels), expected.variance, "variances");
      done(table->batch_norm_forward(stream(), &shape, at_x, mean, variance, at_scale, up(shift),
                                     y));
      expect(down(y, n), expected.y, "F");
      float *const dscale = empty(channels), *const dshift = empty(channels);
      for (const bool wanted : {true, false}) {
        float* const dx = up(dy);  // in place
        done(table->batch_norm_backward_input(stream(), &shape, at_x, mean, variance, at_scale, dx,
                                              scratch, wanted ? dx : nullptr, dscale, dshift));
        expect(down(dscale, channels), expected.dscale, "the scale's gradient");
        expect(down(dshift, channels), expected.dshift, "the shift's gradient");
        if (s.images * s.pixels > 1) expect(down(dx, n), wanted ? expected.dx : dy, "I");
      }
    }
  }
}

TEST_F(CudaImages, BiasesOfChannelsAndMeansOfPlanesHaveTheCpusBits) {
  for (const ChannelShape& s : kChannels) {
    const auto channels = static_cast<std::size_t>(s.channels);
    const std::size_t n = numbers(s), planes = product(s.images, s.channels);
    const Floats x = random_floats(n, 1), bias = random_floats(channels, 2),
                 of_planes = random_floats(planes, 3);
    Floats y = x, dbias = bias, means(planes), dx(n);
    exec::channel_bias_forward(s, bias.data(), y.data());
    exec::channel_bias_backward_weight(s, x.data(), dbias.data());
    exec::global_average_pool_forward(s, x.data(), means.data());
    exec::global_average_pool_backward_input(s, of_planes.data(), dx.data());
    const pipewright_cuda_channels shape{s.images, s.channels, s.pixels};
    for (const auto* table : {&exact(), &fast()}) {
      const auto expect = [&](const Floats& found, const Floats& wanted, const char* what) {
        table == &exact() ? expect_same_bits(found, wanted, what)
                          : expect_near(found, wanted, 2e-6F, what);
      };
      float* const scratch = empty(PIPEWRIGHT_CUDA_CHANNEL_WORDS(s.images, s.channels));
      float *const at_y = up(x), *const added = up(bias), *const written = empty(channels);
      done(table->channel_bias_forward(stream(), &shape, up(bias), at_y));
      expect_same_bits(down(at_y, n), y, "F of biases");
      done(table->channel_bias_backward_weight(stream(), &shape, up(x), scratch, 1, added));
      expect(down(added, channels), dbias, "W of biases, added");
      done(table->channel_bias_backward_weight(stream(), &shape, up(x), scratch, 0, written));
      Floats alone(channels, 0.0F);
      exec::channel_bias_backward_weight(s, x.data(), alone.data());
      expect(down(written, channels), alone, "W of biases, written");
      float *const at_means = empty(planes), *const at_dx = empty(n);
      done(table->global_average_pool_forward(stream(), &shape, up(x), at_means));
      expect(down(at_means, planes), means, "F of means");
      done(table->global_average_pool_backward_input(stream(), &shape, up(of_planes), at_dx));
      expect_same_bits(down(at_dx, n), dx, "I of means");
    }
  }
}

// --- Pooling ---

/// Windows that overlap, that leave gaps, and that reach out of the image.
const PoolShape kPools[] = {
    {.images = 1, .in = {1, 1, 1}, .window = {1, 1, 0}},
    {.images = 2, .in = {3, 7, 6}, .window = {3, 2, 1}},
    {.images = 2, .in = {2, 8, 8}, .window = {2, 2, 0}},
    {.images = 1, .in = {2, 9, 5}, .window = {3, 1, 1}},
    {.images = 2, .in = {2, 9, 9}, .window = {2, 3, 0}},
};

TEST_F(CudaImages, PoolsHaveTheCpusBits) {
  for (const PoolShape& s : kPools) {
    const ImageShape out = s.out();
    const std::size_t before = numbers(s.images, s.in), after = numbers(s.images, out);
    Floats x = random_floats(before, 1);
    for (std::size_t i = 0; i + 1 < x.size(); i += 3) x[i + 1] = x[i];  // the first one counts
    const Floats dy = random_floats(after, 2);
    Floats largest(after), mean(after), of_largest(before), of_mean(before);
    std::vector<std::int32_t> places(after);
    exec::max_pool_forward(s, x.data(), largest.data(), places.data());
    exec::max_pool_backward_input(s, places.data(), dy.data(), of_largest.data());
    exec::average_pool_forward(s, x.data(), mean.data());
    exec::average_pool_backward_input(s, dy.data(), of_mean.data());
    const pipewright_cuda_window w{s.images,      s.in.channels,   s.in.height,
                                   s.in.width,    out.height,      out.width,
                                   s.window.size, s.window.stride, s.window.padding};
    for (const auto* table : {&exact(), &fast()}) {
      float *const y = empty(after), *const dx = empty(before);
      auto* const at = up(std::vector<std::int32_t>(after, -1));
      done(table->max_pool_forward(stream(), &w, up(x), y, at));
      expect_same_bits(down(y, after), largest, "F of the largest");
      EXPECT_EQ(down(at, after), places);
      done(table->max_pool_backward_input(stream(), &w, at, up(dy), dx));
      expect_same_bits(down(dx, before), of_largest, "I of the largest");
      done(table->average_pool_forward(stream(), &w, up(x), y));
      expect_same_bits(down(y, after), mean, "F of means");
      done(table->average_pool_backward_input(stream(), &w, up(dy), dx));
      expect_same_bits(down(dx, before), of_mean, "I of means");
    }
  }
}

// --- The rest ---

TEST_F(CudaImages, RunningStatisticsMoveAsOnACpu) {
  const Floats means = random_floats(5, 1), variances = random_floats(5, 2),
               mean = random_floats(5, 3), variance = random_floats(5, 4);
  for (const float count : {0.0F, 1.0F, 3.0F}) {
    Floats expected_mean = mean, expected_variance = variance;
    if (count > 0) {
      for (std::size_t c = 0; c < 5; ++c) {
        expected_mean[c] += 0.1F * (means[c] / count - expected_mean[c]);
        expected_variance[c] += 0.1F * (variances[c] / count - expected_variance[c]);
      }
    }
    float *const at_mean = up(mean), *const at_variance = up(variance),
                 *const updates = up(Floats{7.0F});
    const pipewright_cuda_statistics of{
        5, 0.1F, up(means), up(variances), up(Floats{count}), at_mean, at_variance, updates};
    done(exact().move_statistics(stream(), &of));
    expect_same_bits(down(at_mean, 5), expected_mean, "means");
    expect_same_bits(down(at_variance, 5), expected_variance, "variances");
    expect_same_bits(down(updates, 1), {count > 0 ? 8.0F : 7.0F}, "updates");
  }
}

/// The same numbers give the same floats, rounded once where they are kept.
TEST_F(CudaImages, InBfloat16TheyAreTheFastTablesFloats) {
  const PoolShape pool = kPools[1];
  const ImageShape out = pool.out();
  const std::size_t before = numbers(pool.images, pool.in), after = numbers(pool.images, out);
  const pipewright_cuda_window w{pool.images,      pool.in.channels,   pool.in.height,
                                 pool.in.width,    out.height,         out.width,
                                 pool.window.size, pool.window.stride, pool.window.padding};
  const pipewright_cuda_channels shape{pool.images, pool.in.channels, pool.in.pixels()};
  const auto channels = static_cast<std::size_t>(pool.in.channels);
  const Floats x = random_floats(before, 1), scale = random_floats(channels, 2);
  const std::vector<Bfloat16> narrow(x.begin(), x.end()), narrow_scale(scale.begin(), scale.end());
  const Floats as_read(narrow.begin(), narrow.end()),
      scale_as_read(narrow_scale.begin(), narrow_scale.end());
  const auto rounded = [](const Floats& all) {
    const std::vector<Bfloat16> kept(all.begin(), all.end());
    return Floats(kept.begin(), kept.end());
  };
  const auto widened = [](const std::vector<Bfloat16>& all) {
    return Floats(all.begin(), all.end());
  };
  float* const wide = empty(after);
  auto* const kept = up(std::vector<Bfloat16>(after));
  done(fast().average_pool_forward(stream(), &w, up(as_read), wide));
  done(bf16().average_pool_forward(stream(), &w, up(narrow), kept));
  expect_same_bits(widened(down(kept, after)), rounded(down(wide, after)), "means");

  float* const scratch = empty(PIPEWRIGHT_CUDA_CHANNEL_WORDS(shape.images, shape.channels));
  float *const mean = empty(channels), *const variance = empty(channels),
               *const mean_of_narrow = empty(channels), *const variance_of_narrow = empty(channels);
  done(fast().batch_statistics(stream(), &shape, up(as_read), scratch, mean, variance));
  done(bf16().batch_statistics(stream(), &shape, up(narrow), scratch, mean_of_narrow,
                               variance_of_narrow));
  expect_same_bits(down(mean_of_narrow, channels), down(mean, channels), "means of channels");
  expect_same_bits(down(variance_of_narrow, channels), down(variance, channels), "variances");
  float* const normed = empty(before);
  auto* const kept_normed = up(std::vector<Bfloat16>(before));
  done(fast().batch_norm_forward(stream(), &shape, up(as_read), mean, variance, up(scale_as_read),
                                 up(scale_as_read), normed));
  done(bf16().batch_norm_forward(stream(), &shape, up(narrow), mean, variance, up(narrow_scale),
                                 up(narrow_scale), kept_normed));
  expect_same_bits(widened(down(kept_normed, before)), rounded(down(normed, before)), "normed");
}

}  // namespace
}  // namespace pipewright::tests
