// Norms outside of exact numerics: rows that threads keep in registers, and sums of columns by
// tiles. Their sums have the orders of exec/devices/cuda/held_rows.hpp and column_tiles.hpp, which
// are written down here a second time, and are as near to sums in double as such orders have to be.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "exec/devices/cuda/held_rows.hpp"
#include "tests/support/cuda_kernel_fixture.hpp"

namespace pipewright::tests {
namespace {

using exec::cuda::held_shape;
using test::Doubles;

/// Of one and of several threads with one to four packs, rows of a warp and of blocks.
constexpr int kWidths[] = {8, 200, 256, 264, 768, 1024, 1032, 2048, 4104, 5120, 12288, 16384};
/// A float's rounding, relative.
constexpr double kRounding = 0x1p-24;

using TermOf = std::function<float(std::size_t)>;

float in_halves(Floats parts) {
  for (std::size_t half = parts.size() / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) parts[i] += parts[i + half];
  }
  return parts.front();
}

/// Packs of 8 dealt to the fewest threads, a power of two from 32 on, that then have at most 4.
float row_sum(std::size_t width, const TermOf& term) {
  std::size_t threads = 32;
  while (width / 8 > 4 * threads) threads *= 2;
  Floats of_warps;
  for (std::size_t warp = 0; warp < threads; warp += 32) {
    Floats parts(32);
    for (std::size_t lane = 0; lane < 32; ++lane) {
      for (std::size_t pack = warp + lane; pack < width / 8; pack += threads) {
        for (std::size_t k = 0; k < 8; ++k) parts[lane] += term(8 * pack + k);
      }
    }
    of_warps.push_back(in_halves(parts));
  }
  return in_halves(of_warps);
}

double exact_sum(std::size_t n, const std::function<double(std::size_t)>& term) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += term(i);
  return sum;
}

/// Of row r: the numbers that a double norm makes of the same arrays.
struct ExactRow {
  Doubles y, dx;
  double mean, inverse;
};
struct Arrays {
  int rows, width;
  Floats x, scale, shift, dy;
};

Arrays arrays_of(int rows, int width) {
  const std::size_t n = product(rows, width), w = product(1, width);
  return {rows,
          width,
          random_floats(n, 3, 5.0F),
          random_floats(w, 5),
          random_floats(w, 6),
          random_floats(n, 4)};
}

ExactRow exact_row(const Arrays& of, std::size_t r, bool centres) {
  const auto n = static_cast<std::size_t>(of.width);
  const auto w = static_cast<double>(of.width);
  const auto x = [&](std::size_t j) { return static_cast<double>(of.x[r * n + j]); };
  const auto g = [&](std::size_t j) {
    return static_cast<double>(of.dy[r * n + j]) * static_cast<double>(of.scale[j]);
  };
  ExactRow row;
  row.mean = centres ? exact_sum(n, x) / w : 0;
  const auto centred = [&](std::size_t j) { return x(j) - row.mean; };
  const double variance = exact_sum(n, [&](std::size_t j) { return centred(j) * centred(j); }) / w;
  row.inverse = 1 / std::sqrt(variance + 1e-5);
  const auto z = [&](std::size_t j) { return centred(j) * row.inverse; };
  const double g_mean = centres ? exact_sum(n, g) / w : 0;
  const double gz_mean = exact_sum(n, [&](std::size_t j) { return g(j) * z(j); }) / w;
  for (std::size_t j = 0; j < n; ++j) {
    const double shift = centres ? static_cast<double>(of.shift[j]) : 0;
    row.y.push_back(z(j) * static_cast<double>(of.scale[j]) + shift);
    row.dx.push_back(row.inverse * (g(j) - g_mean - z(j) * gz_mean));
  }
  return row;
}

struct Normed {
  Floats y, dx, mean, inverse;
};

class CudaNorms : public CudaKernels {
 protected:
  const pipewright_cuda_kernels& fast() const { return cuda_->fast; }

  /// `beside`: the rows begin so many numbers behind a pack's beginning.
  float* placed(const Floats& values, std::size_t beside) {
    Floats all(beside, NAN);
    all.insert(all.end(), values.begin(), values.end());
    return up(all) + beside;
  }
  Normed normed(const Arrays& of, bool centres, std::size_t beside = 0) {
    const std::size_t n = of.x.size(), r = product(of.rows, 1);
    float *const x = placed(of.x, beside), *const y = placed(Floats(n, NAN), beside),
                 *const dx = placed(Floats(n, NAN), beside), *const dy = placed(of.dy, beside);
    float *const mean = up(Floats(r)), *const inverse = up(Floats(r, NAN)),
                 *const scale = placed(of.scale, beside), *const shift = placed(of.shift, beside);
    if (centres) {
      done(fast().layer_norm_forward(stream(), of.rows, of.width, x, scale, shift, y, mean,
                                     inverse));
      done(fast().layer_norm_backward_input(stream(), of.rows, of.width, x, mean, inverse, scale,
                                            dy, dx));
    } else {
      done(fast().rms_norm_forward(stream(), of.rows, of.width, x, scale, y, inverse));
      done(fast().rms_norm_backward_input(stream(), of.rows, of.width, x, inverse, scale, dy, dx));
    }
    return {down(y, n), down(dx, n), down(mean, r), down(inverse, r)};
  }
};

/// A sum of n numbers by k additions each is off by at most k roundings of the sum of their sizes
/// (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, (4.4)). Here k is at most
/// 32 in a thread, 9 in halves; each number is rounded a few times more on its way.
constexpr double kMostAdditions = 32 + 9;

void expect_near_exact(const Normed& found, const Arrays& of, bool centres) {
  const auto n = static_cast<std::size_t>(of.width);
  for (std::size_t r = 0; r < found.inverse.size(); ++r) {
    const ExactRow exact = exact_row(of, r, centres);
    const double of_sizes = exact_sum(
        n, [&](std::size_t j) { return std::fabs(static_cast<double>(of.x[r * n + j])); });
    EXPECT_NEAR(static_cast<double>(found.mean[r]), exact.mean,
                (kMostAdditions + 1) * kRounding * of_sizes / static_cast<double>(of.width));
    EXPECT_NEAR(static_cast<double>(found.inverse[r]) / exact.inverse, 1,
                (kMostAdditions + 8) * kRounding);
    double y_most = 0, dx_most = 0;
    for (std::size_t j = 0; j < n; ++j) {
      y_most = std::max(y_most, std::fabs(exact.y[j]));
      dx_most = std::max(dx_most, std::fabs(exact.dx[j]));
    }
    const double most = 2 * (kMostAdditions + 8) * kRounding;
    for (std::size_t j = 0; j < n; ++j) {
      ASSERT_NEAR(static_cast<double>(found.y[r * n + j]), exact.y[j], most * y_most) << j;
      ASSERT_NEAR(static_cast<double>(found.dx[r * n + j]), exact.dx[j], most * dx_most) << j;
    }
  }
}

TEST_F(CudaNorms, HeldRowsAddUpInTheirOrderAndAreNearTheExactNorm) {
  for (const int width : kWidths) {
    SCOPED_TRACE(width);
    ASSERT_GT(held_shape(width).packs, 0);
    const Arrays of = arrays_of(5, width);
    const auto n = static_cast<std::size_t>(width);
    const auto w = static_cast<float>(width);
    for (const bool centres : {true, false}) {
      const Normed found = normed(of, centres);
      expect_near_exact(found, of, centres);
      for (std::size_t r = 0; r < 5; ++r) {
        const float* const x = of.x.data() + r * n;
        const float mean = centres ? row_sum(n, [&](std::size_t j) { return x[j]; }) / w : 0.0F;
        EXPECT_EQ(found.mean[r], mean);
        const float variance =
            row_sum(n, [&](std::size_t j) { return (x[j] - mean) * (x[j] - mean); }) / w;
        EXPECT_EQ(found.inverse[r], 1.0F / std::sqrt(variance + 1e-5F));
      }
    }
  }
}

/// Widths without packs, rows too long for a block's registers, and arrays that begin anywhere.
TEST_F(CudaNorms, RowsThatDoNotFitAreReadAgain) {
  for (const int width : {7, 15, 1025, 16392}) {
    SCOPED_TRACE(width);
    EXPECT_EQ(held_shape(width).packs, 0);
    const Arrays of = arrays_of(3, width);
    for (const bool centres : {true, false}) expect_near_exact(normed(of, centres), of, centres);
  }
  const Arrays of = arrays_of(3, 256);
  expect_near_exact(normed(of, true, 3), of, true);
}

TEST(HeldRows, TheFewestThreadsHoldARow) {
  struct Expected {
    int width, lanes, packs;
  };
  for (const auto& [width, lanes, packs] : {Expected{8, 32, 1},
                                            {256, 32, 1},
                                            {264, 32, 2},
                                            {768, 32, 3},
                                            {1024, 32, 4},
                                            {1032, 64, 3},
                                            {2048, 64, 4},
                                            {4096, 128, 4},
                                            {5120, 256, 3},
                                            {8192, 256, 4},
                                            {12288, 512, 3},
                                            {16384, 512, 4},
                                            {16392, 0, 0},
                                            {0, 0, 0},
                                            {12, 0, 0}}) {
    EXPECT_EQ(held_shape(width).lanes, lanes) << width;
    EXPECT_EQ(held_shape(width).packs, packs) << width;
  }
}

// --- Columns ---

/// The rows of a part, dealt to eight warps; these in ascending order.
float part_sum(std::size_t first, std::size_t end, const TermOf& term) {
  float sum = 0;
  for (std::size_t warp = 0; warp < 8; ++warp) {
    float of_warp = 0;
    for (std::size_t r = first + warp; r < end; r += 8) of_warp += term(r);
    sum += of_warp;
  }
  return sum;
}

/// Of fewer than 32 rows one after another. Else a part for each 32 rows, up to 2^17 threads, of
/// which 256 columns have 256.
float column_sum(std::size_t rows, std::size_t width, const TermOf& term) {
  if (rows < 32) {
    float sum = 0;
    for (std::size_t r = 0; r < rows; ++r) sum += term(r);
    return sum;
  }
  const std::size_t threads = (width + 255) / 256 * 256;
  const std::size_t most = ((1 << 17) + threads - 1) / threads;
  const std::size_t parts = std::min(std::max<std::size_t>(rows / 32, 1), most);
  if (parts == 1) return part_sum(0, rows, term);
  Floats of_parts;
  for (std::size_t part = 0; part < parts; ++part)
    of_parts.push_back(part_sum(part * rows / parts, (part + 1) * rows / parts, term));
  return part_sum(0, parts, [&](std::size_t part) { return of_parts[part]; });
}

TEST_F(CudaNorms, ColumnsAddUpInTheirOrder) {
  float* const scratch = up(Floats(PIPEWRIGHT_CUDA_COLUMN_WORDS, NAN));
  for (const auto& [rows, width] :
       {std::pair{1, 8}, {31, 264}, {32, 264}, {65, 256}, {700, 33}, {129, 2048}, {3000, 40}}) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(width));
    const std::size_t n = product(rows, width), w = product(1, width), r = product(rows, 1);
    const Floats x = random_floats(n, 1, 5.0F), dy = random_floats(n, 2),
                 mean = random_floats(r, 3), inverse = random_floats(r, 4);
    float *const scale = up(Floats(w, NAN)), *const shift = up(Floats(w, NAN)),
                 *const root = up(Floats(w, NAN)), *const bias = up(Floats(w, NAN));
    const float *const dev_x = up(x), *const dev_dy = up(dy), *const dev_mean = up(mean),
                       *const dev_inverse = up(inverse);
    done(fast().layer_norm_backward_weight(stream(), rows, width, dev_x, dev_mean, dev_inverse,
                                           dev_dy, scratch, 0, scale, shift));
    done(fast().rms_norm_backward_weight(stream(), rows, width, dev_x, dev_inverse, dev_dy, scratch,
                                         0, root));
    done(fast().bias_backward_weight(stream(), rows, width, dev_dy, scratch, 0, bias));
    Floats scale_sums, root_sums, sums;
    for (std::size_t j = 0; j < w; ++j) {
      const auto of = [&](const auto& term) { return column_sum(r, w, term); };
      scale_sums.push_back(of([&](std::size_t row) {
        return dy[row * w + j] * ((x[row * w + j] - mean[row]) * inverse[row]);
      }));
      root_sums.push_back(
          of([&](std::size_t row) { return dy[row * w + j] * (x[row * w + j] * inverse[row]); }));
      sums.push_back(of([&](std::size_t row) { return dy[row * w + j]; }));
      const double exact =
          exact_sum(r, [&](std::size_t row) { return static_cast<double>(dy[row * w + j]); });
      const double sizes = exact_sum(
          r, [&](std::size_t row) { return std::fabs(static_cast<double>(dy[row * w + j])); });
      ASSERT_NEAR(static_cast<double>(sums.back()), exact,
                  (static_cast<double>(rows) / 8 + 32) * kRounding * sizes);
    }
    expect_same_bits(down(scale, w), scale_sums, "the scale's gradient");
    expect_same_bits(down(shift, w), sums, "the shift's gradient");
    expect_same_bits(down(root, w), root_sums, "the scale's gradient of a root");
    expect_same_bits(down(bias, w), sums, "a bias's gradient");
  }
}

}  // namespace
}  // namespace pipewright::tests
