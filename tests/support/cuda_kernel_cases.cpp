// Every kernel of exec/devices/cuda against the operator of exec/layers/ops.hpp that it stands for:
// the same bits.
#include <gtest/gtest.h>

#include <cmath>

#include "exec/devices/cpu/kernels/canonical_gemm.hpp"
#include "exec/layers/ops.hpp"
#include "tests/support/cuda_kernel_fixture.hpp"

namespace pipewright::tests {
namespace {

/// Sizes from 1 to what needs several blocks, and numbers from the dust to where gelu is x.
Floats many_sizes(std::size_t n, std::uint64_t key) {
  Floats x = random_floats(n, key, 12.0F);
  for (std::size_t i = 0; i < n; i += 7) x[i] *= 1e-3F;
  const float special[] = {0.0F, -0.0F, 1e-38F, 70.0F, -70.0F, NAN, INFINITY, -INFINITY};
  for (std::size_t i = 0; i < std::size(special) && 3 * i + 1 < n; ++i) x[3 * i + 1] = special[i];
  return x;
}

TEST_F(CudaKernels, ElementByElementHaveTheCpusBits) {
  for (const std::size_t n : {std::size_t{1}, std::size_t{31}, std::size_t{70000}}) {
    const Floats x = many_sizes(n, n), dy = random_floats(n, n + 1);
    Floats expected(n);
    float* const out = up(Floats(n, NAN));
    exec::gelu_forward(n, x.data(), expected.data());
    done(kernels().gelu_forward(stream(), n, up(x), out));
    expect_same_bits(down(out, n), expected, "gelu F");
    exec::gelu_backward_input(n, x.data(), dy.data(), expected.data());
    done(kernels().gelu_backward_input(stream(), n, up(x), up(dy), out));
    expect_same_bits(down(out, n), expected, "gelu I");
    exec::relu_forward(n, x.data(), expected.data());
    done(kernels().relu_forward(stream(), n, up(x), out));
    expect_same_bits(down(out, n), expected, "relu F");
    exec::relu_backward_input(n, x.data(), dy.data(), expected.data());
    done(kernels().relu_backward_input(stream(), n, up(x), up(dy), out));
    expect_same_bits(down(out, n), expected, "relu I");
    expected = dy;
    exec::add_to(n, x.data(), expected.data());
    float* const sum = up(dy);
    done(kernels().add_to(stream(), n, up(x), sum));
    expect_same_bits(down(sum, n), expected, "sum");
    for (float& one : expected) one *= 0.3F;
    done(kernels().scale(stream(), n, 0.3F, sum));
    expect_same_bits(down(sum, n), expected, "scale");
  }
}

TEST_F(CudaKernels, InPlaceIsAllowedWhereTheOperatorsAllowIt) {
  const std::size_t n = 1000;
  const Floats x = random_floats(n, 1, 3.0F), dy = random_floats(n, 2);
  Floats expected(n);
  exec::gelu_backward_input(n, x.data(), dy.data(), expected.data());
  float* const d = up(dy);
  done(kernels().gelu_backward_input(stream(), n, up(x), d, d));
  expect_same_bits(down(d, n), expected, "gelu I in place");
}

struct Rows {
  int rows, width;
};
constexpr Rows kShapes[] = {{1, 1}, {3, 15}, {5, 16}, {7, 33}, {129, 200}, {2, 1025}};

TEST_F(CudaKernels, BiasAndLayerNormHaveTheCpusBits) {
  for (const auto [rows, width] : kShapes) {
    const std::size_t n = product(rows, width), w = product(1, width), r = product(rows, 1);
    const Floats x = random_floats(n, 3, 5.0F), dy = random_floats(n, 4);
    const Floats scale = random_floats(w, 5), shift = random_floats(w, 6);
    Floats y(n), mean(r), inverse(r);
    const exec::NormShape shape{rows, width};
    exec::layer_norm_forward(shape, x.data(), scale.data(), shift.data(), y.data(), mean.data(),
                             inverse.data());
    float *const dev_y = up(Floats(n, NAN)), *const dev_mean = up(Floats(r, NAN)),
                 *const dev_inverse = up(Floats(r, NAN)), *const dev_x = up(x),
                 *const dev_dy = up(dy);
    done(kernels().layer_norm_forward(stream(), rows, width, dev_x, up(scale), up(shift), dev_y,
                                      dev_mean, dev_inverse));
    expect_same_bits(down(dev_y, n), y, "norm F");
    expect_same_bits(down(dev_mean, r), mean, "norm F, mean");
    expect_same_bits(down(dev_inverse, r), inverse, "norm F, deviation");
    exec::layer_norm_backward_input(shape, x.data(), mean.data(), inverse.data(), scale.data(),
                                    dy.data(), y.data());
    done(kernels().layer_norm_backward_input(stream(), rows, width, dev_x, dev_mean, dev_inverse,
                                             up(scale), dev_dy, dev_y));
    expect_same_bits(down(dev_y, n), y, "norm I");
    Floats dscale = scale, dshift = shift, dbias = shift;
    float *const dev_dscale = up(dscale), *const dev_dshift = up(dshift),
                 *const dev_dbias = up(dbias);
    exec::layer_norm_backward_weight(shape, x.data(), mean.data(), inverse.data(), dy.data(),
                                     dscale.data(), dshift.data());
    done(kernels().layer_norm_backward_weight(stream(), rows, width, dev_x, dev_mean, dev_inverse,
                                              dev_dy, nullptr, 1, dev_dscale, dev_dshift));
    expect_same_bits(down(dev_dscale, w), dscale, "norm W, scale");
    expect_same_bits(down(dev_dshift, w), dshift, "norm W, shift");
    exec::bias_backward_weight(rows, width, dy.data(), dbias.data());
    done(kernels().bias_backward_weight(stream(), rows, width, dev_dy, nullptr, 1, dev_dbias));
    expect_same_bits(down(dev_dbias, w), dbias, "bias W");
    y = x;
    exec::bias_forward(rows, width, shift.data(), y.data());
    done(kernels().bias_forward(stream(), rows, width, up(shift), dev_x));
    expect_same_bits(down(dev_x, n), y, "bias F");
  }
}

std::vector<std::int32_t> random_ids(int rows, int below, std::uint64_t key) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int32_t>(
        exec::uniform_below(exec::key_of(key, "ids"), i, static_cast<std::uint64_t>(below)));
  }
  return ids;
}

/// The host's part of the loss, from what the kernel leaves of each row.
double cross_entropy_of(const Floats& facts) {
  double total = 0;
  for (std::size_t r = 0; r < facts.size(); r += 3) {
    total += std::log(static_cast<double>(facts[r + 1])) +
             (static_cast<double>(facts[r]) - static_cast<double>(facts[r + 2]));
  }
  return total;
}

/// Relative to the largest number.
void expect_near(const Floats& found, const Floats& expected, double most, const char* what) {
  double largest = 0, apart = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(expected[i])));
    const double difference = static_cast<double>(found[i]) - static_cast<double>(expected[i]);
    ASSERT_FALSE(std::isnan(difference)) << what;
    apart = std::max(apart, std::fabs(difference));
  }
  EXPECT_LE(apart, most * largest) << what;
}

/// Rows that more threads share, and columns in parts: other bits, the same numbers, and the same
/// bits each time.
TEST_F(CudaKernels, TheFastOnesStayWithinRoundingOfTheCpus) {
  const pipewright_cuda_kernels& fast = cuda_->fast;
  float* const scratch = up(Floats(PIPEWRIGHT_CUDA_COLUMN_WORDS, NAN));
  for (const auto [rows, width] : {Rows{3, 15}, Rows{129, 200}, Rows{700, 33}, Rows{2, 1025}}) {
    const std::size_t n = product(rows, width), w = product(1, width), r = product(rows, 1);
    const Floats x = random_floats(n, 3, 5.0F), dy = random_floats(n, 4);
    const Floats scale = random_floats(w, 5), shift = random_floats(w, 6);
    const exec::NormShape shape{rows, width};
    Floats y(n), mean(r), inverse(r);
    exec::layer_norm_forward(shape, x.data(), scale.data(), shift.data(), y.data(), mean.data(),
                             inverse.data());
    float *const out = up(Floats(n, NAN)), *const dev_mean = up(Floats(r, NAN)),
                 *const dev_inverse = up(Floats(r, NAN)), *const dev_x = up(x),
                 *const dev_dy = up(dy);
    done(fast.layer_norm_forward(stream(), rows, width, dev_x, up(scale), up(shift), out, dev_mean,
                                 dev_inverse));
    expect_near(down(out, n), y, 2e-6, "norm F");
    exec::layer_norm_backward_input(shape, x.data(), mean.data(), inverse.data(), scale.data(),
                                    dy.data(), y.data());
    done(fast.layer_norm_backward_input(stream(), rows, width, dev_x, dev_mean, dev_inverse,
                                        up(scale), dev_dy, out));
    expect_near(down(out, n), y, 2e-6, "norm I");
    for (const int adds : {0, 1}) {
      Floats dscale = adds != 0 ? scale : Floats(w), dshift = adds != 0 ? shift : Floats(w),
             dbias = dshift;
      exec::layer_norm_backward_weight(shape, x.data(), mean.data(), inverse.data(), dy.data(),
                                       dscale.data(), dshift.data());
      exec::bias_backward_weight(rows, width, dy.data(), dbias.data());
      for (const pipewright_cuda_kernels* table : {&fast, &kernels()}) {
        float *const a = up(adds != 0 ? scale : Floats(w, NAN)),
                     *const b = up(adds != 0 ? shift : Floats(w, NAN)),
                     *const c = up(adds != 0 ? shift : Floats(w, NAN));
        done(table->layer_norm_backward_weight(stream(), rows, width, dev_x, dev_mean, dev_inverse,
                                               dev_dy, scratch, adds, a, b));
        expect_near(down(a, w), dscale, 2e-6, "norm W, scale");
        expect_near(down(b, w), dshift, 2e-6, "norm W, shift");
        done(table->bias_backward_weight(stream(), rows, width, dev_dy, scratch, adds, c));
        expect_near(down(c, w), dbias, 2e-6, "bias W");
      }
    }
    const auto labels = random_ids(rows, width, 9);
    float* const facts = up(Floats(3 * r, NAN));
    const double loss =
        exec::softmax_cross_entropy_forward({rows, width}, x.data(), labels.data(), y.data());
    done(fast.cross_entropy_forward(stream(), rows, width, dev_x, up(labels), dev_x, facts));
    expect_near(down(dev_x, n), y, 2e-6, "cross-entropy F");
    EXPECT_NEAR(cross_entropy_of(down(facts, 3 * r)), loss, 1e-5 * std::fabs(loss));
    float* const sums = up(Floats(r, NAN));
    done(fast.mse_forward(stream(), rows, width, dev_dy, up(x), sums));
    double total = 0;
    for (const float one : down(sums, r)) total += static_cast<double>(one);
    const double mse = exec::mse_forward({rows, width}, dy.data(), x.data());
    EXPECT_NEAR(total, mse, 1e-5 * mse);
  }
}

TEST_F(CudaKernels, TheLossesHaveTheCpusBits) {
  for (const auto [rows, width] : kShapes) {
    const std::size_t n = product(rows, width), r = product(rows, 1);
    const Floats x = random_floats(n, 7, 20.0F), target = random_floats(n, 8);
    const auto labels = random_ids(rows, width, 9);
    Floats expected(n);
    const double loss = exec::softmax_cross_entropy_forward({rows, width}, x.data(), labels.data(),
                                                            expected.data());
    float *const in_place = up(x), *const facts = up(Floats(3 * r, NAN));
    const std::int32_t* const dev_labels = up(labels);
    done(kernels().cross_entropy_forward(stream(), rows, width, in_place, dev_labels, in_place,
                                         facts));
    expect_same_bits(down(in_place, n), expected, "cross-entropy F");
    EXPECT_EQ(cross_entropy_of(down(facts, 3 * r)), loss);
    exec::softmax_cross_entropy_backward_input({rows, width}, expected.data(), labels.data(), 0.3F,
                                               expected.data());
    done(kernels().cross_entropy_backward_input(stream(), rows, width, in_place, dev_labels, 0.3F,
                                                in_place));
    expect_same_bits(down(in_place, n), expected, "cross-entropy I");

    float *const y = up(x), *const sums = up(Floats(r, NAN));
    done(kernels().mse_forward(stream(), rows, width, y, up(target), sums));
    double total = 0;
    for (const float one : down(sums, r)) total += static_cast<double>(one);
    EXPECT_EQ(total, exec::mse_forward({rows, width}, x.data(), target.data()));
    exec::mse_backward_input({rows, width}, x.data(), target.data(), 0.3F, expected.data());
    done(kernels().mse_backward_input(stream(), n, y, up(target), 0.3F, y));
    expect_same_bits(down(y, n), expected, "mse I");
  }
}

TEST_F(CudaKernels, AnEmbeddingHasTheCpusBitsWhateverTokensRepeat) {
  const int sequence = 5, width = 19;
  const pipewright_cuda_places places = places_of_whole(sequence);
  for (const int vocabulary : {1, 3, 400}) {
    const int rows = 40;
    const auto ids = random_ids(rows, vocabulary, 10);
    const std::size_t n = product(rows, width), t = product(vocabulary, width),
                      p = product(sequence + 2, width);
    const Floats tokens = random_floats(t, 11), positions = random_floats(p, 12),
                 dy = random_floats(n, 13);
    const exec::EmbeddingShape shape{rows, sequence, width};
    const std::int32_t* const dev_ids = up(ids);
    std::int32_t* const links = up(std::vector<std::int32_t>(2 * product(rows, 1), -7));
    for (const bool has_positions : {true, false}) {
      Floats y(n), dtokens = tokens, dpositions = positions;
      float *const dev_y = up(Floats(n, NAN)), *const dev_dtokens = up(dtokens),
                   *const dev_dpositions = up(dpositions);
      exec::embedding_forward(shape, ids.data(), tokens.data(),
                              has_positions ? positions.data() : nullptr, y.data());
      done(kernels().embedding_forward(stream(), rows, width, &places, dev_ids, up(tokens),
                                       has_positions ? up(positions) : nullptr, dev_y));
      expect_same_bits(down(dev_y, n), y, "embedding F");
      exec::embedding_backward_weight(shape, ids.data(), dy.data(), dtokens.data(),
                                      has_positions ? dpositions.data() : nullptr);
      done(kernels().embedding_backward_weight(stream(), rows, width, &places, dev_ids, up(dy),
                                               links, dev_dtokens,
                                               has_positions ? dev_dpositions : nullptr));
      expect_same_bits(down(dev_dtokens, t), dtokens, "embedding W, tokens");
      expect_same_bits(down(dev_dpositions, p), dpositions, "embedding W, positions");
    }
  }
}

// --- Products ---

struct Product {
  int m, n, k;
  bool a_transposed, b_transposed;
  float alpha, beta;
};

pipewright_cuda_gemm described(const Product& p, const float* a, const float* b, float* c) {
  pipewright_cuda_gemm g{};
  g.m = p.m;
  g.n = p.n;
  g.k = p.k;
  g.outer = g.inner = 1;
  g.alpha = p.alpha;
  g.beta = p.beta;
  g.a = {a, (p.a_transposed ? p.m : p.k) + 3, p.a_transposed ? 1 : 0, 0, 0};
  g.b = {b, (p.b_transposed ? p.k : p.n) + 1, p.b_transposed ? 1 : 0, 0, 0};
  g.c = c;
  g.c_stride = p.n + 2;
  return g;
}

std::vector<Product> products() {
  std::vector<Product> all;
  for (const auto [m, n, k] :
       {std::array{1, 1, 1}, std::array{3, 17, 5}, std::array{64, 64, 16}, std::array{33, 129, 7},
        std::array{65, 63, 33}, std::array{130, 70, 200}}) {
    for (const bool a : {false, true}) {
      for (const bool b : {false, true}) {
        all.push_back({m, n, k, a, b, 1.0F, 0.0F});
        all.push_back({m, n, k, a, b, 0.37F, 0.0F});
        all.push_back({m, n, k, a, b, 1.0F, 1.0F});
      }
    }
  }
  return all;
}

TEST_F(CudaKernels, TheCanonicalProductHasTheCpusBits) {
  for (const Product& p : products()) {
    const Floats a = random_floats(product(p.m + 4, p.k + 4) + 99 * 99, 30),
                 b = random_floats(product(p.k + 4, p.n + 4) + 99 * 99, 31);
    Floats c = random_floats(product(p.m, p.n + 2), 32);
    c.front() = -0.0F;
    float* const found = up(c);
    const pipewright_cuda_gemm g = described(p, up(a), up(b), found);
    done(kernels().canonical_gemm(stream(), &g));
    exec::cpu::canonical_gemm(exec::cpu::available_isas().back(), {p.m, p.n, p.k}, p.alpha,
                              {a.data(), g.a.stride, p.a_transposed},
                              {b.data(), g.b.stride, p.b_transposed}, p.beta, c.data(), g.c_stride);
    expect_same_bits(down(found, c.size()), c, "the canonical product");
  }
}

/// Of a batch, whose matrices overlap as attention's heads do.
TEST_F(CudaKernels, CublasIsAskedForTheSameProducts) {
  constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
  float* const workspace = up(Floats(kWorkspaceBytes / sizeof(float)));
  void* const blas =
      exec::cuda::required(*cuda_, cuda_->blas(stream(), 0, workspace, kWorkspaceBytes));
  for (const Product& p : products()) {
    const std::size_t one = product(p.m, p.n + 2);
    const Floats a = random_floats(product(p.m + 4, p.k + 4) + 99 * 99, 30),
                 b = random_floats(product(p.k + 4, p.n + 4) + 99 * 99, 31),
                 c = random_floats(4 * one, 32);
    float *const canonical = up(c), *const found = up(c);
    pipewright_cuda_gemm g = described(p, up(a), up(b), canonical);
    g.outer = g.inner = 2;
    g.a.outer_step = 3;
    g.a.inner_step = 7;
    g.b.outer_step = 5;
    g.c_inner_step = static_cast<std::int64_t>(one);
    g.c_outer_step = 2 * g.c_inner_step;
    done(kernels().canonical_gemm(stream(), &g));
    g.c = found;
    done(cuda_->gemm(blas, &g, PIPEWRIGHT_CUDA_FP32));
    const Floats expected = down(canonical, c.size()), got = down(found, c.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], expected[i], 1e-4) << p.m << " x " << p.n << " x " << p.k;
  }
  cuda_->release_blas(blas);
}

/// A long chain of zeros must not turn -0 into 0, nor what lies beyond the chain enter it.
TEST_F(CudaKernels, AChainBeginsAndEndsWhereItsProductDoes) {
  const Product p{2, 2, 1, false, false, 1.0F, 1.0F};
  const Floats a(8 * 8, -1.0F), b(8 * 8, 0.0F);
  Floats c(product(2, 4), -0.0F);
  float* const found = up(c);
  const pipewright_cuda_gemm g = described(p, up(a), up(b), found);
  done(kernels().canonical_gemm(stream(), &g));
  EXPECT_TRUE(std::signbit(down(found, 1).front()));
}

// --- Attention ---

/// The batch's steps, heads inside samples, as exec/devices/cuda/queue_ops.cpp describes them.
TEST_F(CudaKernels, CausalSoftmaxHasTheBitsOfTheCpusAttention) {
  const exec::AttentionShape s{2, 7, 12, 3};
  const std::size_t words = product(s.rows(), s.width);
  const Floats qkv = random_floats(3 * words, 40), dcontext = random_floats(words, 41);
  Floats probabilities(s.probabilities()), context(words);
  exec::attention_forward(s, qkv.data(), probabilities.data(), context.data(),
                          exec::Numerics::Exact);
  const int d = s.head_width(), t = s.sequence, squares = s.samples * s.heads;
  const std::int64_t of_sample = 3LL * t * s.width, of_square = static_cast<std::int64_t>(t) * t;
  float *const dev_p = up(Floats(probabilities.size(), NAN)),
               *const dev_context = up(Floats(words, NAN)), *const dev_qkv = up(qkv);
  const float scale = 1.0F / std::sqrt(static_cast<float>(d));
  pipewright_cuda_gemm scores{t, t, d, s.samples, s.heads, scale, 0.0F, {}, {}, dev_p, t, 0, 0};
  scores.a = {dev_qkv, 3 * s.width, 0, of_sample, d};
  scores.b = {dev_qkv + s.width, 3 * s.width, 1, of_sample, d};
  scores.c_outer_step = of_square * s.heads;
  scores.c_inner_step = of_square;
  done(kernels().canonical_gemm(stream(), &scores));
  const pipewright_cuda_causal of = squares_of(squares, t);
  done(kernels().causal_softmax_forward(stream(), &of, dev_p));
  expect_same_bits(down(dev_p, probabilities.size()), probabilities, "attention F");
  pipewright_cuda_gemm out{t,  d,  t,           s.samples, s.heads, 1.0F, 0.0F,
                           {}, {}, dev_context, s.width,   0,       0};
  out.a = {dev_p, t, 0, of_square * s.heads, of_square};
  out.b = {dev_qkv + 2 * s.width, 3 * s.width, 0, of_sample, d};
  out.c_outer_step = static_cast<std::int64_t>(t) * s.width;
  out.c_inner_step = d;
  done(kernels().canonical_gemm(stream(), &out));
  expect_same_bits(down(dev_context, words), context, "attention F, context");
}

}  // namespace
}  // namespace pipewright::tests
