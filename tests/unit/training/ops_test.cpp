// Every operator against a slow and obvious version in double: F by value, I and W against central
// differences of that version. Sizes go from 1 to odd ones that no vector width divides.
#include "exec/layers/ops.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "exec/devices/cpu/kernels/exponential.hpp"
#include "tests/unit/numeric.hpp"

namespace pipewright::exec {
namespace ops_test {

using test::Doubles;
using test::expect_close;
using test::Floats;
using test::numeric_gradient;
using test::random_floats;
using test::widened;

// A float sum of n terms is off by about n · 6e-8 at worst; the rows here have at most some hundred
// terms of size 1.
constexpr double kTolerance = 1e-5;

std::size_t product(int a, int b, int c = 1) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b) * static_cast<std::size_t>(c);
}

Doubles reference_matmul(const Doubles& a, const Doubles& b, int m, int k, int n) {
  Doubles c(product(m, n));
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      for (int l = 0; l < k; ++l)
        c[product(i, n) + j] += a[product(i, k) + l] * b[product(l, n) + j];
    }
  }
  return c;
}

class LinearOp : public testing::TestWithParam<LinearShape> {};

TEST_P(LinearOp, AgreesWithTheReference) {
  const LinearShape s = GetParam();
  const Floats x = random_floats(product(s.rows, s.in), 1);
  const Floats w = random_floats(product(s.in, s.out), 2);
  const Floats dy = random_floats(product(s.rows, s.out), 3);

  Floats y(dy.size(), NAN);  // F and I overwrite whatever was there
  linear_forward(s, x.data(), w.data(), y.data());
  expect_close(y, reference_matmul(widened(x), widened(w), s.rows, s.in, s.out), kTolerance, "F");

  Floats dx(x.size(), NAN);
  linear_backward_input(s, dy.data(), w.data(), dx.data());
  const auto of_x = [&](const Doubles& at) {
    return reference_matmul(at, widened(w), s.rows, s.in, s.out);
  };
  expect_close(dx, numeric_gradient(of_x, widened(x), dy), kTolerance, "I");

  // W adds: a gradient that begins at 1 must end 1 higher.
  Floats dw(w.size(), 1.0F);
  linear_backward_weight(s, x.data(), dy.data(), dw.data());
  const auto of_w = [&](const Doubles& at) {
    return reference_matmul(widened(x), at, s.rows, s.in, s.out);
  };
  Doubles expected = numeric_gradient(of_w, widened(w), dy);
  for (double& e : expected) e += 1;
  expect_close(dw, expected, kTolerance, "W");
}

INSTANTIATE_TEST_SUITE_P(Sizes, LinearOp,
                         testing::Values(LinearShape{1, 1, 1}, LinearShape{1, 17, 3},
                                         LinearShape{5, 1, 7}, LinearShape{13, 7, 1},
                                         LinearShape{9, 19, 11}));

TEST(BiasOp, AddsToEveryRowAndSumsItsGradientOverThem) {
  const int rows = 5, width = 19;
  const Floats bias = random_floats(19, 1);
  const Floats x = random_floats(product(rows, width), 2);
  const Floats dy = random_floats(product(rows, width), 3);
  const auto of_bias = [&](const Doubles& at) {
    Doubles y = widened(x);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += at[i % 19];
    return y;
  };
  Floats y = x;
  bias_forward(rows, width, bias.data(), y.data());
  expect_close(y, of_bias(widened(bias)), kTolerance, "F");
  Floats dbias(19, 0.0F);
  bias_backward_weight(rows, width, dy.data(), dbias.data());
  expect_close(dbias, numeric_gradient(of_bias, widened(bias), dy), kTolerance, "W");
}

class ElementwiseOp : public testing::TestWithParam<int> {};

TEST_P(ElementwiseOp, Relu) {
  const auto n = static_cast<std::size_t>(GetParam());
  const Floats x = random_floats(n, 4);
  const Floats dy = random_floats(n, 5);
  Floats y(n, NAN), dx(n, NAN);
  relu_forward(n, x.data(), y.data());
  relu_backward_input(n, y.data(), dy.data(), dx.data());
  for (std::size_t i = 0; i < n; ++i) {
    EXPECT_EQ(y[i], x[i] > 0 ? x[i] : 0.0F);
    EXPECT_EQ(dx[i], x[i] > 0 ? dy[i] : 0.0F);
  }
}

Doubles reference_gelu(const Doubles& x) {
  Doubles y;
  for (const double v : x) {
    y.push_back(0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))));
  }
  return y;
}

TEST_P(ElementwiseOp, Gelu) {
  const auto n = static_cast<std::size_t>(GetParam());
  const Floats x = random_floats(n, 6, 9.0F);  // from where it is 0 to where it is x
  const Floats dy = random_floats(n, 7);
  Floats y(n, NAN), dx(n, NAN);
  gelu_forward(n, x.data(), y.data());
  expect_close(y, reference_gelu(widened(x)), 1e-6, "F");
  gelu_backward_input(n, x.data(), dy.data(), dx.data());
  expect_close(dx, numeric_gradient(reference_gelu, widened(x), dy), kTolerance, "I");

  Floats in_place = dy;
  gelu_backward_input(n, x.data(), in_place.data(), in_place.data());
  EXPECT_EQ(in_place, dx);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ElementwiseOp, testing::Values(1, 3, 16, 37, 101));

TEST(GeluOp, EndsAreExact) {
  const Floats x = {-1e30F, -50.0F, 0.0F, 50.0F, 1e30F};
  Floats y(5);
  gelu_forward(5, x.data(), y.data());
  EXPECT_EQ(y[2], 0.0F);
  EXPECT_EQ(y[3], 50.0F);
  EXPECT_EQ(y[4], 1e30F);
  EXPECT_NEAR(y[1], 0.0F, 1e-20F);
}

TEST(Exponential, KeepsItsPromiseOverItsRange) {
  double worst = 0;
  for (float x = cpu::kLeastExponent; x <= cpu::kMostExponent; x += 0.00137F) {
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::fabs(static_cast<double>(cpu::exp_in_range(x)) - exact) / exact);
  }
  EXPECT_LT(worst, 3e-7);
  EXPECT_EQ(cpu::exp_in_range(0.0F), 1.0F);
  EXPECT_TRUE(std::isnan(cpu::exp_in_range(cpu::clamp_exponent(NAN))));
  EXPECT_EQ(cpu::clamp_exponent(-1e30F), cpu::kLeastExponent);
  EXPECT_EQ(cpu::clamp_exponent(1e30F), cpu::kMostExponent);
  EXPECT_EQ(cpu::clamp_exponent(5.0F), 5.0F);
}

Doubles reference_norm(const Doubles& x, const Doubles& scale, const Doubles& shift, int rows,
                       int width) {
  Doubles y(x.size());
  for (int r = 0; r < rows; ++r) {
    const double* in = x.data() + product(r, width);
    double mean = 0, variance = 0;
    for (int j = 0; j < width; ++j) mean += in[j] / width;
    for (int j = 0; j < width; ++j) variance += (in[j] - mean) * (in[j] - mean) / width;
    for (int j = 0; j < width; ++j) {
      const auto at = static_cast<std::size_t>(j);
      y[product(r, width) + at] =
          (in[j] - mean) / std::sqrt(variance + 1e-5) * scale[at] + shift[at];
    }
  }
  return y;
}

class LayerNormOp : public testing::TestWithParam<NormShape> {};

TEST_P(LayerNormOp, AgreesWithTheReference) {
  const NormShape s = GetParam();
  const auto width = static_cast<std::size_t>(s.width);
  const auto rows = static_cast<std::size_t>(s.rows);
  Floats x = random_floats(rows * width, 8);
  for (float& v : x) v += 3.0F;  // the mean must not be lost in the variance
  const Floats scale = random_floats(width, 9), shift = random_floats(width, 10);
  const Floats dy = random_floats(rows * width, 11);

  Floats y(x.size(), NAN), mean(rows, NAN), inverse(rows, NAN), dx(x.size(), NAN);
  layer_norm_forward(s, x.data(), scale.data(), shift.data(), y.data(), mean.data(),
                     inverse.data());
  expect_close(y, reference_norm(widened(x), widened(scale), widened(shift), s.rows, s.width),
               kTolerance, "F");

  layer_norm_backward_input(s, x.data(), mean.data(), inverse.data(), scale.data(), dy.data(),
                            dx.data());
  const auto of_x = [&](const Doubles& at) {
    return reference_norm(at, widened(scale), widened(shift), s.rows, s.width);
  };
  expect_close(dx, numeric_gradient(of_x, widened(x), dy), 5e-5, "I");

  Floats dscale(width, 0.0F), dshift(width, 0.0F);
  layer_norm_backward_weight(s, x.data(), mean.data(), inverse.data(), dy.data(), dscale.data(),
                             dshift.data());
  const auto of_scale = [&](const Doubles& at) {
    return reference_norm(widened(x), at, widened(shift), s.rows, s.width);
  };
  const auto of_shift = [&](const Doubles& at) {
    return reference_norm(widened(x), widened(scale), at, s.rows, s.width);
  };
  expect_close(dscale, numeric_gradient(of_scale, widened(scale), dy), kTolerance, "W of scale");
  expect_close(dshift, numeric_gradient(of_shift, widened(shift), dy), kTolerance, "W of shift");
}

INSTANTIATE_TEST_SUITE_P(Sizes, LayerNormOp,
                         testing::Values(NormShape{1, 1}, NormShape{1, 5}, NormShape{7, 16},
                                         NormShape{3, 37}));

Doubles reference_rms_norm(const Doubles& x, const Doubles& scale, const NormShape& s) {
  Doubles y;
  for (int r = 0; r < s.rows; ++r) {
    double squares = 0;
    const double* row = x.data() + product(r, s.width);
    for (int j = 0; j < s.width; ++j) squares += row[j] * row[j];
    for (int j = 0; j < s.width; ++j)
      y.push_back(row[j] / std::sqrt(squares / s.width + 1e-5) *
                  scale[static_cast<std::size_t>(j)]);
  }
  return y;
}

class RmsNormOp : public LayerNormOp {};

TEST_P(RmsNormOp, AgreesWithTheReference) {
  const NormShape s = GetParam();
  const auto rows = static_cast<std::size_t>(s.rows);
  const Floats x = random_floats(product(s.rows, s.width), 31);
  const Floats scale = random_floats(static_cast<std::size_t>(s.width), 32);
  const Floats dy = random_floats(x.size(), 33);
  Floats y(x.size(), NAN), inverse(rows, NAN), dx(x.size(), NAN), dscale(scale.size(), 1.0F);
  rms_norm_forward(s, x.data(), scale.data(), y.data(), inverse.data());
  expect_close(y, reference_rms_norm(widened(x), widened(scale), s), kTolerance, "F");

  rms_norm_backward_input(s, x.data(), inverse.data(), scale.data(), dy.data(), dx.data());
  const auto of_x = [&](const Doubles& at) { return reference_rms_norm(at, widened(scale), s); };
  expect_close(dx, numeric_gradient(of_x, widened(x), dy), 5e-5, "I");

  rms_norm_backward_weight(s, x.data(), inverse.data(), dy.data(), dscale.data());
  const auto of_scale = [&](const Doubles& at) { return reference_rms_norm(widened(x), at, s); };
  Doubles expected = numeric_gradient(of_scale, widened(scale), dy);
  for (double& e : expected) e += 1;
  expect_close(dscale, expected, kTolerance, "W");
}

INSTANTIATE_TEST_SUITE_P(Sizes, RmsNormOp,
                         testing::Values(NormShape{1, 2}, NormShape{7, 16}, NormShape{3, 37}));

TEST(SwigluOp, AgreesWithTheReference) {
  for (const auto& [rows, width] : {std::pair{1, 1}, {3, 5}, {2, 601}}) {
    const Floats x = random_floats(product(rows, 2 * width), 34, 3.0F);
    const Floats dy = random_floats(product(rows, width), 35);
    const auto reference = [rows = rows, width = width](const Doubles& at) {
      Doubles y;
      for (int r = 0; r < rows; ++r) {
        const double* row = at.data() + product(r, 2 * width);
        for (int j = 0; j < width; ++j)
          y.push_back(row[j] / (1 + std::exp(-row[j])) * row[width + j]);
      }
      return y;
    };
    Floats y(dy.size(), NAN), dx(x.size(), NAN);
    swiglu_forward(rows, width, x.data(), y.data());
    expect_close(y, reference(widened(x)), kTolerance, "F");
    swiglu_backward_input(rows, width, x.data(), dy.data(), dx.data());
    expect_close(dx, numeric_gradient(reference, widened(x), dy), kTolerance, "I");
  }
}

/// Two samples of rows that hold three heads of four numbers and two more that stay as they are.
TEST(RotaryOp, TurnsPairsByTheirPlaceAndBackAgain) {
  const RotaryShape s{2, 9, 3, 4, 14, 100};
  const Floats x = random_floats(product(2 * 9, 14), 36);
  Floats scratch(s.scratch(), NAN), y = x;
  rotate(s, false, y.data(), scratch.data());
  Doubles expected = widened(x);
  for (int row = 0; row < 18; ++row) {
    for (int head = 0; head < 3; ++head) {
      double* at = expected.data() + product(row, 14) + product(head, 4);
      const double a[] = {at[0], at[1], at[2], at[3]};
      for (int j = 0; j < 2; ++j) {
        const double angle = row % 9 / (j == 0 ? 1.0 : 10.0);  // 100^(-2/4)
        at[j] = a[j] * std::cos(angle) - a[j + 2] * std::sin(angle);
        at[j + 2] = a[j + 2] * std::cos(angle) + a[j] * std::sin(angle);
      }
    }
  }
  expect_close(y, expected, 1e-6, "F");
  // A rotation keeps lengths, so its gradient is the way back.
  rotate(s, true, y.data(), scratch.data());
  expect_close(y, widened(x), 1e-6, "I");
}

/// Two heads of five numbers, of which the last four are turned, behind one that stays.
TEST(RotaryOp, TurnsNeighboursOfAPartOfEachHead) {
  const RotaryShape s{.samples = 1,
                      .sequence = 3,
                      .heads = 2,
                      .head_width = 4,
                      .stride = 10,
                      .base = 100,
                      .head_stride = 5,
                      .neighbours = true};
  const Floats x = random_floats(30, 37);
  Floats scratch(s.scratch(), NAN), y = x;
  rotate(s, false, y.data() + 1, scratch.data());
  Doubles expected = widened(x);
  for (int row = 0; row < 3; ++row) {
    for (int pair = 0; pair < 4; ++pair) {
      double* at = expected.data() + product(row, 10) + product(pair / 2, 5) + 1 + pair % 2 * 2;
      const double a = at[0], b = at[1];
      const double angle = row / (pair % 2 == 0 ? 1.0 : 10.0);  // 100^(-2/4)
      at[0] = a * std::cos(angle) - b * std::sin(angle);
      at[1] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
  expect_close(y, expected, 1e-6, "F");
  rotate(s, true, y.data() + 1, scratch.data());
  expect_close(y, widened(x), 1e-6, "I");
}

Doubles reference_attention(const AttentionShape& s, const Doubles& qkv) {
  const int t = s.sequence, d = s.head_width();
  Doubles context(product(s.rows(), s.width));
  const auto at = [&](int sample, int row, int part, int head, int j) {
    const int before = part == 0 ? 0 : s.width + (part - 1) * s.key_width();
    const int own = part == 0 ? head : head / s.queries_a_key();
    return qkv[product(sample * t + row, s.qkv_width()) +
               static_cast<std::size_t>(before + own * d + j)];
  };
  for (int n = 0; n < s.samples; ++n) {
    for (int h = 0; h < s.heads; ++h) {
      for (int i = 0; i < t; ++i) {
        Doubles p(static_cast<std::size_t>(i + 1));
        double sum = 0;
        for (int k = 0; k <= i; ++k) {
          double score = 0;
          for (int j = 0; j < d; ++j) score += at(n, i, 0, h, j) * at(n, k, 1, h, j);
          sum += p[static_cast<std::size_t>(k)] = std::exp(score / std::sqrt(d));
        }
        for (int j = 0; j < d; ++j) {
          double& out = context[product(n * t + i, s.width) + static_cast<std::size_t>(h * d + j)];
          for (int k = 0; k <= i; ++k) {
            out += p[static_cast<std::size_t>(k)] / sum * at(n, k, 2, h, j);
          }
        }
      }
    }
  }
  return context;
}

class AttentionOp : public testing::TestWithParam<AttentionShape> {};

TEST_P(AttentionOp, AgreesWithTheReference) {
  const AttentionShape s = GetParam();
  const Floats qkv = random_floats(product(s.rows(), s.qkv_width()), 12, 1.5F);
  const Floats dcontext = random_floats(product(s.rows(), s.width), 13);
  Floats probabilities(s.probabilities(), NAN), context(dcontext.size(), NAN);
  attention_forward(s, qkv.data(), probabilities.data(), context.data());
  expect_close(context, reference_attention(s, widened(qkv)), kTolerance, "F");

  Floats dqkv(qkv.size(), NAN), scratch(product(s.sequence, s.sequence), NAN);
  attention_backward_input(s, qkv.data(), probabilities.data(), dcontext.data(), dqkv.data(),
                           scratch.data());
  const auto of_qkv = [&](const Doubles& at) { return reference_attention(s, at); };
  expect_close(dqkv, numeric_gradient(of_qkv, widened(qkv), dcontext), kTolerance, "I");
}

INSTANTIATE_TEST_SUITE_P(Sizes, AttentionOp,
                         testing::Values(AttentionShape{1, 1, 1, 1}, AttentionShape{2, 3, 4, 2},
                                         AttentionShape{1, 17, 6, 2}, AttentionShape{3, 5, 9, 3},
                                         AttentionShape{2, 5, 8, 4, 2},
                                         AttentionShape{1, 7, 18, 6, 1}));

TEST(EmbeddingOp, LooksUpAddsPositionsAndScattersTheGradient) {
  // Two samples of three tokens; token 4 occurs three times, so its gradient adds up.
  const EmbeddingShape s{6, 3, 5};
  const std::vector<std::int32_t> ids = {4, 0, 4, 6, 4, 1};
  const Floats tokens = random_floats(35, 14), positions = random_floats(15, 15);
  const Floats dy = random_floats(30, 16);
  const auto reference = [&](const Doubles& table, const Doubles& places) {
    Doubles y;
    for (std::size_t r = 0; r < 6; ++r) {
      for (std::size_t j = 0; j < 5; ++j) {
        y.push_back(table[static_cast<std::size_t>(ids[r]) * 5 + j] + places[r % 3 * 5 + j]);
      }
    }
    return y;
  };
  Floats y(30, NAN);
  embedding_forward(s, ids.data(), tokens.data(), positions.data(), y.data());
  expect_close(y, reference(widened(tokens), widened(positions)), 1e-7, "F");

  Floats dtokens(35, 0.0F), dpositions(15, 0.0F);
  embedding_backward_weight(s, ids.data(), dy.data(), dtokens.data(), dpositions.data());
  const auto of_tokens = [&](const Doubles& at) { return reference(at, widened(positions)); };
  const auto of_positions = [&](const Doubles& at) { return reference(widened(tokens), at); };
  expect_close(dtokens, numeric_gradient(of_tokens, widened(tokens), dy), kTolerance, "tokens");
  expect_close(dpositions, numeric_gradient(of_positions, widened(positions), dy), kTolerance,
               "positions");

  Floats without(30, NAN);
  embedding_forward(s, ids.data(), tokens.data(), nullptr, without.data());
  expect_close(without, reference(widened(tokens), Doubles(15, 0.0)), 1e-7, "F, no positions");
}

class LossOp : public testing::TestWithParam<LossShape> {};

TEST_P(LossOp, SoftmaxCrossEntropy) {
  const LossShape s = GetParam();
  const Floats logits = random_floats(product(s.rows, s.width), 17, 4.0F);
  std::vector<std::int32_t> labels;
  for (int r = 0; r < s.rows; ++r) labels.push_back(r * 7 % s.width);
  const auto reference = [&](const Doubles& x) {
    double loss = 0;
    for (int r = 0; r < s.rows; ++r) {
      double sum = 0;
      for (int j = 0; j < s.width; ++j) sum += std::exp(x[product(r, s.width) + j]);
      loss += std::log(sum) - x[product(r, s.width) + labels[static_cast<std::size_t>(r)]];
    }
    return Doubles{loss};
  };
  Floats p(logits.size(), NAN);
  const double loss = softmax_cross_entropy_forward(s, logits.data(), labels.data(), p.data());
  EXPECT_NEAR(loss, reference(widened(logits))[0], 1e-5);
  Floats in_place = logits;
  EXPECT_EQ(softmax_cross_entropy_forward(s, in_place.data(), labels.data(), in_place.data()),
            loss);
  EXPECT_EQ(in_place, p);

  softmax_cross_entropy_backward_input(s, p.data(), labels.data(), 0.25F, p.data());
  expect_close(p, numeric_gradient(reference, widened(logits), {0.25F}), kTolerance, "I");
}

TEST_P(LossOp, Mse) {
  const LossShape s = GetParam();
  const Floats y = random_floats(product(s.rows, s.width), 18);
  const Floats target = random_floats(y.size(), 19);
  const auto reference = [&](const Doubles& x) {
    double loss = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      loss += (x[i] - static_cast<double>(target[i])) * (x[i] - static_cast<double>(target[i]));
    }
    return Doubles{loss};
  };
  EXPECT_NEAR(mse_forward(s, y.data(), target.data()), reference(widened(y))[0], 1e-5);
  Floats dy(y.size(), NAN);
  mse_backward_input(s, y.data(), target.data(), 0.25F, dy.data());
  expect_close(dy, numeric_gradient(reference, widened(y), {0.25F}), kTolerance, "I");
}

INSTANTIATE_TEST_SUITE_P(Sizes, LossOp,
                         testing::Values(LossShape{1, 1}, LossShape{1, 17}, LossShape{7, 3},
                                         LossShape{5, 33}));

TEST(SoftmaxCrossEntropyOp, LargeLogitsDoNotOverflow) {
  // softmax(1000, 0) = (1, 0): the loss of the second class is 1000.
  const Floats logits = {1000.0F, 0.0F};
  const std::vector<std::int32_t> label = {1};
  Floats p(2);
  EXPECT_NEAR(softmax_cross_entropy_forward({1, 2}, logits.data(), label.data(), p.data()), 1000.0,
              1e-9);
  EXPECT_EQ(p[0], 1.0F);
}

// Ranks are threads that call BLAS at once: each must get what it would get alone.
TEST(LinearOp, ThreadsDoNotDisturbEachOther) {
  const LinearShape s{61, 67, 71};
  const Floats w = random_floats(product(s.in, s.out), 21);
  std::vector<Floats> alone, together(4);
  std::vector<Floats> inputs;
  for (std::uint64_t t = 0; t < 4; ++t) {
    inputs.push_back(random_floats(product(s.rows, s.in), 30 + t));
    alone.emplace_back(product(s.rows, s.out));
    linear_forward(s, inputs.back().data(), w.data(), alone.back().data());
  }
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      together[t].resize(product(s.rows, s.out));
      for (int i = 0; i < 200; ++i) {
        linear_forward(s, inputs[t].data(), w.data(), together[t].data());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(alone, together);
}

}  // namespace ops_test
}  // namespace pipewright::exec
