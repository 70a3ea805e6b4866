// The kernels of layers in Llama's style, and what evaluations ask of rows: in exact numerics the
// CPU's bits, in the others within rounding of them, and in bfloat16 the floats of the fast table,
// rounded once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "exec/devices/cpu/kernels/rotary.hpp"
#include "exec/devices/cuda/bfloat16.hpp"
#include "exec/evaluation/evaluation.hpp"
#include "exec/layers/ops.hpp"
#include "tests/support/cuda_kernel_fixture.hpp"

namespace pipewright::tests {
namespace {

using exec::cuda::Bfloat16;
using Narrow = std::vector<Bfloat16>;

Floats rounded(const Floats& x) {
  const Narrow all(x.begin(), x.end());
  return {all.begin(), all.end()};
}
Floats wide(const Narrow& x) { return {x.begin(), x.end()}; }

/// Relative to the largest number.
void expect_near(const Floats& found, const Floats& expected, const char* what) {
  ASSERT_EQ(found.size(), expected.size());
  float largest = 0, apart = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_FALSE(std::isnan(found[i])) << what << ", element " << i;
    largest = std::max(largest, std::fabs(expected[i]));
    apart = std::max(apart, std::fabs(found[i] - expected[i]));
  }
  EXPECT_LE(apart, 2e-6F * largest) << what;
}

struct Rows {
  int rows, width;
};
/// Rows that are whole packs and that are none; columns that are added up in one part and in many.
constexpr Rows kShapes[] = {{1, 1}, {3, 15}, {7, 64}, {700, 33}, {129, 200}, {2, 1024}};

class CudaLlama : public CudaKernels {
 protected:
  float* scratch() { return up(Floats(PIPEWRIGHT_CUDA_COLUMN_WORDS, NAN)); }
  const pipewright_cuda_kernels& fast() const { return cuda_->fast; }
  const pipewright_cuda_kernels& bf16() const { return cuda_->bf16; }
};

struct Normed {
  Floats y, inverse, dx, dscale;
};

Normed normed_by_cpu(const Rows& of, const Floats& x, const Floats& scale, const Floats& dy) {
  const exec::NormShape shape{of.rows, of.width};
  Normed all{Floats(x.size()), Floats(product(of.rows, 1)), Floats(x.size()), scale};
  exec::rms_norm_forward(shape, x.data(), scale.data(), all.y.data(), all.inverse.data());
  exec::rms_norm_backward_input(shape, x.data(), all.inverse.data(), scale.data(), dy.data(),
                                all.dx.data());
  exec::rms_norm_backward_weight(shape, x.data(), all.inverse.data(), dy.data(), all.dscale.data());
  return all;
}

TEST_F(CudaLlama, RmsNormsHaveTheCpusBits) {
  for (const Rows& of : kShapes) {
    const std::size_t n = product(of.rows, of.width), w = product(1, of.width),
                      r = product(of.rows, 1);
    const Floats x = random_floats(n, 1, 5.0F), scale = random_floats(w, 2),
                 dy = random_floats(n, 3);
    const Normed expected = normed_by_cpu(of, x, scale, dy);
    float *const y = up(Floats(n, NAN)), *const inverse = up(Floats(r, NAN)),
                 *const dx = up(Floats(n, NAN)), *const dev_x = up(x), *const dev_dy = up(dy);
    for (const auto* table : {&kernels(), &fast()}) {
      const bool is_exact = table == &kernels();
      const auto expect = [&](const Floats& found, const Floats& wanted, const char* what) {
        is_exact ? expect_same_bits(found, wanted, what) : expect_near(found, wanted, what);
      };
      done(table->rms_norm_forward(stream(), of.rows, of.width, dev_x, up(scale), y, inverse));
      expect(down(y, n), expected.y, "F");
      expect(down(inverse, r), expected.inverse, "F, roots");
      done(table->rms_norm_backward_input(stream(), of.rows, of.width, dev_x, inverse, up(scale),
                                          dev_dy, dx));
      expect(down(dx, n), expected.dx, "I");
      float* const dscale = up(scale);
      done(table->rms_norm_backward_weight(stream(), of.rows, of.width, dev_x, inverse, dev_dy,
                                           is_exact ? nullptr : scratch(), 1, dscale));
      expect(down(dscale, w), expected.dscale, "W");
    }
  }
}

/// A gradient that nothing was added to is written.
TEST_F(CudaLlama, TheScalesGradientIsWrittenOrAddedTo) {
  for (const Rows& of : kShapes) {
    const std::size_t n = product(of.rows, of.width), w = product(1, of.width);
    const float* const x = up(random_floats(n, 1));
    const float* const dy = up(random_floats(n, 3));
    const float* const inverse = up(random_floats(product(of.rows, 1), 4));
    for (const auto* table : {&kernels(), &fast()}) {
      float *const written = up(Floats(w, NAN)), *const added = up(Floats(w, 0.0F));
      for (const int adds : {0, 1}) {
        done(table->rms_norm_backward_weight(stream(), of.rows, of.width, x, inverse, dy, scratch(),
                                             adds, adds != 0 ? added : written));
      }
      expect_same_bits(down(written, w), down(added, w), "W");
    }
  }
}

TEST_F(CudaLlama, GatedActivationsHaveTheCpusBits) {
  for (const Rows& of : kShapes) {
    const std::size_t n = product(of.rows, of.width);
    Floats x = random_floats(2 * n, 5, 20.0F);
    const float special[] = {0.0F, -0.0F, 70.0F, -70.0F, NAN, INFINITY};
    std::copy_n(special, std::min(std::size(special), x.size()), x.begin());
    const Floats dy = random_floats(n, 6);
    Floats y(n), dx(2 * n);
    exec::swiglu_forward(of.rows, of.width, x.data(), y.data());
    exec::swiglu_backward_input(of.rows, of.width, x.data(), dy.data(), dx.data());
    for (const auto* table : {&kernels(), &fast()}) {
      float *const dev_y = up(Floats(n, NAN)), *const dev_dx = up(Floats(2 * n, NAN));
      done(table->swiglu_forward(stream(), of.rows, of.width, up(x), dev_y));
      done(table->swiglu_backward_input(stream(), of.rows, of.width, up(x), up(dy), dev_dx));
      expect_same_bits(down(dev_y, n), y, "F");
      expect_same_bits(down(dev_dx, 2 * n), dx, "I");
    }
  }
}

/// Heads of whole packs and others, in rows that have more than these heads.
TEST_F(CudaLlama, RotatedHeadsHaveTheCpusBitsAndLeaveTheRestAlone) {
  for (const int head_width : {2, 6, 16, 64}) {
    for (const int beside : {0, 3, 32}) {
      const exec::RotaryShape s{.samples = 2,
                                .sequence = 9,
                                .heads = 3,
                                .head_width = head_width,
                                .stride = 3 * head_width + beside,
                                .base = 500000};
      const int rows = s.samples * s.sequence;
      const Floats x = random_floats(product(rows, s.stride), 7);
      Floats turns(s.scratch()), scratch(s.scratch());
      exec::cpu::fill_turns(s, turns.data());
      for (const bool back : {false, true}) {
        Floats expected = x;
        exec::rotate(s, back, expected.data(), scratch.data());
        for (const auto* table : {&kernels(), &fast()}) {
          float* const found = up(x);
          done(table->rotate(stream(), rows, s.sequence, s.heads, head_width, s.stride,
                             back ? 1 : 0, up(turns), found));
          expect_same_bits(down(found, x.size()), expected, "rotated");
        }
        const Floats start = rounded(x);
        float* const floats = up(start);
        Bfloat16* const narrow = up(Narrow(start.begin(), start.end()));
        done(fast().rotate(stream(), rows, s.sequence, s.heads, head_width, s.stride, back ? 1 : 0,
                           up(turns), floats));
        done(bf16().rotate(stream(), rows, s.sequence, s.heads, head_width, s.stride, back ? 1 : 0,
                           up(turns), narrow));
        expect_same_bits(wide(down(narrow, x.size())), rounded(down(floats, x.size())), "bf16");
      }
    }
  }
}

TEST_F(CudaLlama, Bfloat16IsTheFastTableRoundedOnce) {
  for (const Rows& of : kShapes) {
    const std::size_t n = product(of.rows, of.width), w = product(1, of.width),
                      r = product(of.rows, 1);
    const Floats x = rounded(random_floats(2 * n, 8, 5.0F)), scale = rounded(random_floats(w, 9)),
                 dy = rounded(random_floats(n, 10));
    const auto narrow = [&](const Floats& from) { return up(Narrow(from.begin(), from.end())); };
    float *const y = up(Floats(2 * n, NAN)), *const inverse = up(Floats(r, NAN)),
                 *const other = up(Floats(r, NAN)), *const dscale = up(Floats(w)),
                 *const other_dscale = up(Floats(w));
    Bfloat16* const out = up(Narrow(2 * n));
    const auto expect_rounded = [&](std::size_t size, const char* what) {
      expect_same_bits(wide(down(out, size)), rounded(down(y, size)), what);
    };
    done(fast().rms_norm_forward(stream(), of.rows, of.width, up(x), up(scale), y, inverse));
    done(
        bf16().rms_norm_forward(stream(), of.rows, of.width, narrow(x), narrow(scale), out, other));
    expect_rounded(n, "norm F");
    expect_same_bits(down(other, r), down(inverse, r), "norm F, roots");
    done(fast().rms_norm_backward_input(stream(), of.rows, of.width, up(x), inverse, up(scale),
                                        up(dy), y));
    done(bf16().rms_norm_backward_input(stream(), of.rows, of.width, narrow(x), inverse,
                                        narrow(scale), narrow(dy), out));
    expect_rounded(n, "norm I");
    done(fast().rms_norm_backward_weight(stream(), of.rows, of.width, up(x), inverse, up(dy),
                                         scratch(), 1, dscale));
    done(bf16().rms_norm_backward_weight(stream(), of.rows, of.width, narrow(x), inverse,
                                         narrow(dy), scratch(), 1, other_dscale));
    expect_same_bits(down(other_dscale, w), down(dscale, w), "norm W");
  }
}

/// Rows with equal largest numbers, and with what is no finite number; labels at both ends, and of
/// columns that another rank has.
TEST_F(CudaLlama, RowsAreJudgedAsTheCpuJudgesThem) {
  for (const auto& [rows, width] : kShapes) {
    Floats x = rounded(random_floats(product(rows, width), 11));
    std::vector<std::int32_t> labels;
    for (int r = 0; r < rows; ++r) {
      float* const row = x.data() + product(r, width);
      if (r % 3 == 1) std::fill_n(row, width, 0.5F);
      if (r % 5 == 2) row[width - 1] = r % 2 == 0 ? NAN : INFINITY;
      labels.push_back(r % 4 == 3
                           ? width - 1
                           : static_cast<std::int32_t>(std::max_element(row, row + width) - row));
    }
    for (const auto& [has_labels, first] :
         {std::pair{true, 0}, {true, 1}, {true, -3}, {false, 0}}) {
      std::vector<std::int32_t> own = has_labels ? labels : std::vector<std::int32_t>();
      for (std::int32_t& label : own) label -= first;
      const auto expected = exec::outcomes_of_rows(rows, width, x.data(), own);
      const std::int32_t* const at = has_labels ? up(labels) : nullptr;
      for (const auto* table : {&kernels(), &fast(), &bf16()}) {
        float* const facts = up(Floats(3 * product(rows, 1), NAN));
        const void* const outputs =
            table == &bf16() ? static_cast<const void*>(up(Narrow(x.begin(), x.end()))) : up(x);
        done(table->judge_rows(stream(), rows, width, first, outputs, at, facts));
        const Floats found = down(facts, 3 * product(rows, 1));
        for (std::size_t r = 0; r < expected.size(); ++r) {
          EXPECT_EQ(found[3 * r + 2] != 0.0F, expected[r].is_finite) << r;
          if (!expected[r].is_finite) continue;
          EXPECT_EQ(found[3 * r], expected[r].largest) << r;
          EXPECT_EQ(found[3 * r + 1] != 0.0F, expected[r].is_label) << r;
        }
      }
    }
  }
}

}  // namespace
}  // namespace pipewright::tests
