// The kernels of exec/devices/cuda that make, sum, clip and apply gradients, and start weights,
// against what they stand for on the CPU: the same bits.
#include <gtest/gtest.h>

#include <algorithm>

#include "exec/base/fixed_point.hpp"
#include "exec/base/random.hpp"
#include "exec/layers/optimizer.hpp"
#include "exec/layers/parameters.hpp"
#include "exec/training/gradient_norm.hpp"
#include "tests/support/cuda_kernel_fixture.hpp"

namespace pipewright::tests {
namespace {

class CudaUpdates : public CudaKernels {};

/// Of parameters that do not decay and of others, in one launch.
TEST_F(CudaUpdates, UpdatesHaveTheCpusBits) {
  const std::size_t n = 5000, plain = 1777;
  exec::OptimizerSpec spec;
  for (const auto kind : {exec::OptimizerKind::Sgd, exec::OptimizerKind::AdamW}) {
    spec.kind = kind;
    const Floats start = random_floats(n, 14);
    const auto middle = start.begin() + static_cast<std::ptrdiff_t>(plain);
    exec::Parameter p{"p", false, {start.begin(), middle}, exec::AlignedFloats(plain, 0.0F)};
    exec::Parameter q{"q", true, {middle, start.end()}, exec::AlignedFloats(n - plain, 0.0F)};
    exec::Optimizer optimizer(spec, {&p, &q});
    float *const value = up(start), *const mean = up(Floats(n, 0.0F)),
                 *const square = up(Floats(n, 0.0F));
    for (int step = 0; step < 3; ++step) {
      Floats gradient = random_floats(n, 15 + static_cast<std::uint64_t>(step));
      for (std::size_t i = 0; i < n; i += 3) gradient[i] *= 1e-29F;
      std::copy_n(gradient.begin(), plain, p.gradient.begin());
      std::copy(gradient.begin() + static_cast<std::ptrdiff_t>(plain), gradient.end(),
                q.gradient.begin());
      optimizer.update(step);
      if (kind == exec::OptimizerKind::Sgd) {
        const auto rate = static_cast<float>(spec.learning_rate);
        done(kernels().sgd(stream(), n, rate, up(gradient), value, nullptr));
      } else {
        std::vector<pipewright_cuda_adamw> factors;
        for (const bool decays : {false, true}) {
          const exec::AdamFactors f = exec::adam_factors(spec, step, decays);
          factors.push_back({f.keep_mean, f.take_mean, f.keep_square, f.take_square, f.rate,
                             f.square_correction, f.epsilon, f.keep_value});
        }
        done(kernels().adamw(stream(), n, plain, up(factors), up(gradient), mean, square, value,
                             nullptr));
      }
      Floats expected(p.value.begin(), p.value.end());
      expected.insert(expected.end(), q.value.begin(), q.value.end());
      expect_same_bits(down(value, n), expected, "update");
    }
  }
}

TEST_F(CudaUpdates, OrderFreeSumsAreThoseOfTheCpu) {
  const std::size_t n = 3000;
  exec::FixedPointSums sums(n);
  std::int64_t *const high = up(std::vector<std::int64_t>(n, 0)), *const low =
                                                                      up(std::vector<std::int64_t>(
                                                                          n, 0));
  int* const bad = up(std::vector<int>{0});
  for (const float size : {1e12F, 1.0F, 1e-3F, 1e-9F, 1e-17F, 1e-30F}) {
    const Floats x = random_floats(n, 20, size);
    ASSERT_TRUE(sums.add(x));
    float* const part = up(x);
    done(kernels().fixed_add(stream(), n, part, high, low, bad));
    EXPECT_EQ(down(part, n), Floats(n, 0.0F)) << "the part has been added";
    const exec::FixedPointSums::Words& expected = sums.high();
    EXPECT_EQ(down(high, n), std::vector<std::int64_t>(expected.begin(), expected.end()));
    EXPECT_EQ(down(low, n), std::vector<std::int64_t>(sums.low().begin(), sums.low().end()));
    Floats rounded(n);
    sums.round_to(rounded);
    float* const gradient = up(Floats(n, NAN));
    done(kernels().fixed_round(stream(), n, high, low, gradient));
    expect_same_bits(down(gradient, n), rounded, "rounded");
  }
  EXPECT_EQ(down(bad, 1).front(), 0);
  for (const float no_number : {NAN, INFINITY, -5e12F}) {
    Floats x(n, 0.0F);
    x[17] = no_number;
    int* const flag = up(std::vector<int>{0});
    done(kernels().fixed_add(stream(), n, up(x), high, low, flag));
    EXPECT_EQ(down(flag, 1).front(), 1) << no_number;
  }
}

TEST_F(CudaUpdates, TheSumOfSquaresIsThatOfTheCpu) {
  std::int64_t* const partial = up(std::vector<std::int64_t>(PIPEWRIGHT_CUDA_SQUARE_WORDS, -1));
  std::int64_t* const total = up(std::vector<std::int64_t>(4, 0));
  int* const bad = up(std::vector<int>{0});
  exec::SquareSum expected;
  for (const std::size_t n : {std::size_t{1}, std::size_t{2047}, std::size_t{300001}}) {
    Floats x = random_floats(n, n, 3.0F);
    x.front() = 1e11F;
    ASSERT_TRUE(expected.add(x));
    done(kernels().add_squares(stream(), n, up(x), partial, total, bad));
    const std::vector<std::int64_t> found = down(total, 4);
    EXPECT_EQ(found, (std::vector<std::int64_t>{expected.small.high, expected.small.low,
                                                expected.large.high, expected.large.low}));
  }
  EXPECT_EQ(down(bad, 1).front(), 0);
  done(kernels().add_squares(stream(), 1, up(Floats{NAN}), partial, total, bad));
  EXPECT_EQ(down(bad, 1).front(), 1);
}

TEST_F(CudaUpdates, GradientsAreClippedByTheCpusFactor) {
  const std::size_t n = 1000;
  float* const factor = up(Floats{NAN});
  int* const bad = up(std::vector<int>{0});
  for (const float size : {1e-4F, 3.0F, 1e9F}) {
    std::vector<std::int64_t> totals;
    exec::SquareSum all;
    for (const std::uint64_t rank : {1, 2, 3}) {
      exec::SquareSum one;
      ASSERT_TRUE(one.add(random_floats(n, rank, size)));
      totals.insert(totals.end(), {one.small.high, one.small.low, one.large.high, one.large.low});
      ASSERT_TRUE(all.add(one));
    }
    const Floats y = random_floats(n, 4);
    for (const double most : {0.01, 1e6}) {
      const float expected = exec::clip_factor(all.norm(), most);
      done(kernels().clip_factor(stream(), 3, up(totals), most, factor, bad));
      expect_same_bits(down(factor, 1), {expected}, "factor");
      Floats scaled = y;
      for (float& element : scaled) element *= expected;
      float* const dev_y = up(y);
      done(kernels().scale_by(stream(), n, factor, dev_y));
      expect_same_bits(down(dev_y, n), scaled, "clipped");
    }
  }
  EXPECT_EQ(down(bad, 1).front(), 0);
  double* const number = up(std::vector<double>{0});
  const exec::SquareSum one{{3, std::int64_t{1} << 59}, {5, std::int64_t{1} << 58}};
  done(kernels().squares_as_number(
      stream(),
      up(std::vector<std::int64_t>{one.small.high, one.small.low, one.large.high, one.large.low}),
      number));
  EXPECT_EQ(down(number, 1).front(), one.small.value() + one.large.value() * 0x1p40);
  for (const double most : {0.5, 1e9}) {
    done(kernels().clip_factor_of_number(stream(), number, most, factor));
    expect_same_bits(down(factor, 1), {exec::clip_factor(one.norm(), most)}, "factor of a number");
  }
  const std::int64_t most = (std::int64_t{1} << 62) - 1;
  done(kernels().clip_factor(
      stream(), 2, up(std::vector<std::int64_t>{most, 0, 0, 0, most, 0, 0, 0}), 1.0, factor, bad));
  EXPECT_EQ(down(bad, 1).front(), 1);
}

TEST_F(CudaUpdates, WeightsStartWithTheCpusBits) {
  for (const float bound : {0.37F, 0.0F}) {
    Weight weight;
    weight.size = 70001;
    weight.bound = bound;
    weight.value = 1.0F;
    exec::LayerSite site;
    site.path = "2.block/0.up";
    site.seed = 9;
    const exec::Parameter p = exec::allocated(site, weight);
    float* const value = up(Floats(p.value.size(), NAN));
    done(kernels().start(stream(), p.value.size(), exec::key_of(9, p.name), bound, 1.0F, value));
    expect_same_bits(down(value, p.value.size()), {p.value.begin(), p.value.end()}, "start");
  }
}

}  // namespace
}  // namespace pipewright::tests
