// The table of kernels for numbers of bfloat16. But for activations (activation_cases.cpp) it is
// the fast table except for what lies in memory, so from the same numbers it makes the same floats,
// bit for bit, and what it keeps in 16 bits are these floats, rounded once.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "exec/devices/cuda/bfloat16.hpp"
#include "tests/support/cuda_kernel_fixture.hpp"

namespace pipewright::tests {
namespace {

using exec::cuda::Bfloat16;
using Narrow = std::vector<Bfloat16>;

Narrow narrow(const Floats& x) { return {x.begin(), x.end()}; }

/// By the definition, in integers: the nearest of the two neighbours, of equals the even one.
std::uint16_t nearest(float x) {
  const auto word = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t below = word >> 16, rest = word & 0xFFFF;
  const bool up = rest > 0x8000 || (rest == 0x8000 && below % 2 == 1);
  return static_cast<std::uint16_t>(below + (up ? 1 : 0));
}

class CudaBf16 : public CudaKernels {
 protected:
  /// An array of both kinds, with the same numbers.
  struct Both {
    float* wide;
    Bfloat16* narrow;
    std::size_t size;
  };
  Both both(const Floats& x) {
    const Narrow rounded = tests::narrow(x);
    return {up(Floats(rounded.begin(), rounded.end())), up(rounded), x.size()};
  }
  Both both(std::size_t n, std::uint64_t key, float size = 1.0F) {
    return both(random_floats(n, key, size));
  }
  /// For results; both begin with what nobody may read.
  Both nothing(std::size_t n) { return both(Floats(n, NAN)); }

  void expect_rounded(const Both& found, const char* what) {
    const Narrow kept = down(found.narrow, found.size);
    Floats expected;
    for (const float x : down(found.wide, found.size)) expected.push_back(Bfloat16(x));
    expect_same_bits({kept.begin(), kept.end()}, expected, what);
  }
  const pipewright_cuda_kernels& fast() const { return cuda_->fast; }
  const pipewright_cuda_kernels& bf16() const { return cuda_->bf16; }
};

TEST_F(CudaBf16, NumbersAreRoundedToTheNearest) {
  std::vector<std::uint32_t> words;
  for (std::uint32_t half = 0; half < 0x10000; half += 7) {
    for (const std::uint32_t rest : {0x0U, 0x1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU})
      words.push_back(half << 16 | rest);
  }
  Floats x;
  for (const std::uint32_t word : words) x.push_back(std::bit_cast<float>(word));
  Bfloat16* const y = up(Narrow(x.size()));
  done(bf16().round(stream(), x.size(), up(x), y));
  const Narrow found = down(y, x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint16_t expected = std::isnan(x[i]) ? 0x7FFF : nearest(x[i]);
    ASSERT_EQ(found[i].bits, expected) << std::hex << words[i];
    ASSERT_EQ(Bfloat16(x[i]).bits, expected) << std::hex << words[i];
  }
}

TEST_F(CudaBf16, ElementsAreThoseOfFloatsRoundedOnce) {
  for (const std::size_t n : {std::size_t{1}, std::size_t{9}, std::size_t{70003}}) {
    const Both x = both(n, n, 12.0F), dy = both(n, n + 1), y = nothing(n);
    done(fast().relu_forward(stream(), n, x.wide, y.wide));
    done(bf16().relu_forward(stream(), n, x.narrow, y.narrow));
    expect_rounded(y, "relu F");
    done(fast().relu_backward_input(stream(), n, x.wide, dy.wide, y.wide));
    done(bf16().relu_backward_input(stream(), n, x.narrow, dy.narrow, y.narrow));
    expect_rounded(y, "relu I");
    done(fast().add_to(stream(), n, x.wide, dy.wide));
    done(bf16().add_to(stream(), n, x.narrow, dy.narrow));
    expect_rounded(dy, "sum");
    const float* const target = up(random_floats(n, 3));
    done(fast().mse_backward_input(stream(), n, x.wide, target, 0.3F, y.wide));
    done(bf16().mse_backward_input(stream(), n, x.narrow, target, 0.3F, y.narrow));
    expect_rounded(y, "mse I");
  }
}

struct Rows {
  int rows, width;
};
constexpr Rows kShapes[] = {{1, 1}, {3, 15}, {700, 33}, {129, 200}, {2, 1025}, {3, 2048}};

TEST_F(CudaBf16, RowsAndColumnsAddUpTheSameFloats) {
  float* const scratch = up(Floats(PIPEWRIGHT_CUDA_COLUMN_WORDS, NAN));
  for (const auto [rows, width] : kShapes) {
    const std::size_t n = product(rows, width), w = product(1, width), r = product(rows, 1);
    const Both x = both(n, 3, 5.0F), dy = both(n, 4), scale = both(w, 5), shift = both(w, 6),
               y = nothing(n);
    float *const mean[] = {up(Floats(r, NAN)), up(Floats(r, NAN))}, *const inverse[] = {
                                                                        up(Floats(r, NAN)),
                                                                        up(Floats(r, NAN))};
    done(fast().layer_norm_forward(stream(), rows, width, x.wide, scale.wide, shift.wide, y.wide,
                                   mean[0], inverse[0]));
    done(bf16().layer_norm_forward(stream(), rows, width, x.narrow, scale.narrow, shift.narrow,
                                   y.narrow, mean[1], inverse[1]));
    expect_rounded(y, "norm F");
    expect_same_bits(down(mean[1], r), down(mean[0], r), "norm F, mean");
    expect_same_bits(down(inverse[1], r), down(inverse[0], r), "norm F, deviation");
    done(fast().layer_norm_backward_input(stream(), rows, width, x.wide, mean[0], inverse[0],
                                          scale.wide, dy.wide, y.wide));
    done(bf16().layer_norm_backward_input(stream(), rows, width, x.narrow, mean[0], inverse[0],
                                          scale.narrow, dy.narrow, y.narrow));
    expect_rounded(y, "norm I");
    const Floats before = random_floats(w, 7);
    for (const int adds : {0, 1}) {
      float *const of_fast[] = {up(before), up(before), up(before)}, *const of_bf16[] = {
                                                                         up(before), up(before),
                                                                         up(before)};
      done(fast().layer_norm_backward_weight(stream(), rows, width, x.wide, mean[0], inverse[0],
                                             dy.wide, scratch, adds, of_fast[0], of_fast[1]));
      done(bf16().layer_norm_backward_weight(stream(), rows, width, x.narrow, mean[0], inverse[0],
                                             dy.narrow, scratch, adds, of_bf16[0], of_bf16[1]));
      done(fast().bias_backward_weight(stream(), rows, width, dy.wide, scratch, adds, of_fast[2]));
      done(
          bf16().bias_backward_weight(stream(), rows, width, dy.narrow, scratch, adds, of_bf16[2]));
      for (int k = 0; k < 3; ++k)
        expect_same_bits(down(of_bf16[k], w), down(of_fast[k], w), "gradients of norm and bias");
    }
    done(fast().bias_forward(stream(), rows, width, shift.wide, x.wide));
    done(bf16().bias_forward(stream(), rows, width, shift.narrow, x.narrow));
    expect_rounded(x, "bias F");
  }
}

TEST_F(CudaBf16, LossesAddUpTheSameFloats) {
  for (const auto [rows, width] : kShapes) {
    const std::size_t n = product(rows, width), r = product(rows, 1);
    const Both logits = both(n, 8, 20.0F);
    std::vector<std::int32_t> labels(r);
    for (std::size_t i = 0; i < r; ++i)
      labels[i] = static_cast<std::int32_t>(7 * i % product(1, width));
    const std::int32_t* const at = up(labels);
    float* const facts[] = {up(Floats(3 * r, NAN)), up(Floats(3 * r, NAN))};
    const float* const target = up(random_floats(n, 9));
    done(fast().mse_forward(stream(), rows, width, logits.wide, target, facts[0]));
    done(bf16().mse_forward(stream(), rows, width, logits.narrow, target, facts[1]));
    expect_same_bits(down(facts[1], r), down(facts[0], r), "mse F");
    // Probabilities take the place of the logits.
    done(fast().cross_entropy_forward(stream(), rows, width, logits.wide, at, logits.wide,
                                      facts[0]));
    done(bf16().cross_entropy_forward(stream(), rows, width, logits.narrow, at, logits.narrow,
                                      facts[1]));
    expect_rounded(logits, "cross-entropy F");
    expect_same_bits(down(facts[1], 3 * r), down(facts[0], 3 * r), "cross-entropy F, rows");
    const Narrow kept = down(logits.narrow, n);
    const Both probabilities = both({kept.begin(), kept.end()}), d = nothing(n);
    done(fast().cross_entropy_backward_input(stream(), rows, width, probabilities.wide, at, 0.3F,
                                             d.wide));
    done(bf16().cross_entropy_backward_input(stream(), rows, width, probabilities.narrow, at, 0.3F,
                                             d.narrow));
    expect_rounded(d, "cross-entropy I");
  }
}

/// A short sequence, whose rows half a warp has each, and one that blocks have.
TEST_F(CudaBf16, AttentionAddsUpTheSameFloats) {
  for (const auto& [squares, sequence] : {std::pair{6, 37}, {2, 515}}) {
    const std::size_t n = product(squares, sequence * sequence);
    const Both scores = both(n, 10, 9.0F), d = both(n, 11);
    const pipewright_cuda_causal of = squares_of(squares, sequence);
    done(fast().causal_softmax_forward(stream(), &of, scores.wide));
    done(bf16().causal_softmax_forward(stream(), &of, scores.narrow));
    expect_rounded(scores, "softmax F");
    const Narrow kept = down(scores.narrow, n);
    const Both p = both({kept.begin(), kept.end()});
    done(fast().causal_softmax_backward_input(stream(), &of, 0.7F, p.wide, d.wide));
    done(bf16().causal_softmax_backward_input(stream(), &of, 0.7F, p.narrow, d.narrow));
    expect_rounded(d, "softmax I");
  }
}

TEST_F(CudaBf16, EmbeddingsAddUpTheSameFloats) {
  const int rows = 40, of_sample = 5, width = 19, vocabulary = 7;
  std::vector<std::int32_t> ids;
  for (int r = 0; r < rows; ++r) ids.push_back(r * r % vocabulary);
  const std::int32_t* const at = up(ids);
  std::int32_t* const links = up(std::vector<std::int32_t>(2 * ids.size()));
  const Both tokens = both(product(vocabulary, width), 12),
             places = both(product(of_sample, width), 13), dy = both(product(rows, width), 14),
             y = nothing(dy.size);
  const pipewright_cuda_places in_samples = places_of_whole(of_sample);
  done(fast().embedding_forward(stream(), rows, width, &in_samples, at, tokens.wide, places.wide,
                                y.wide));
  done(bf16().embedding_forward(stream(), rows, width, &in_samples, at, tokens.narrow,
                                places.narrow, y.narrow));
  expect_rounded(y, "embedding F");
  const Floats before = random_floats(tokens.size, 15);
  float *const of_tokens[] = {up(before), up(before)}, *const of_places[] = {up(before),
                                                                             up(before)};
  done(fast().embedding_backward_weight(stream(), rows, width, &in_samples, at, dy.wide, links,
                                        of_tokens[0], of_places[0]));
  done(bf16().embedding_backward_weight(stream(), rows, width, &in_samples, at, dy.narrow, links,
                                        of_tokens[1], of_places[1]));
  expect_same_bits(down(of_tokens[1], tokens.size), down(of_tokens[0], tokens.size), "tokens");
  expect_same_bits(down(of_places[1], places.size), down(of_places[0], places.size), "positions");
}

/// A table whose module, or stand-in, has left one out would be found by the first training that
/// needs it.
TEST_F(CudaBf16, EveryFunctionOfTheTableIsThere) {
  const auto are_all_there = [](const void* from, const void* to) {
    const auto* const first = static_cast<void* const*>(from);
    return std::none_of(first, static_cast<void* const*>(to),
                        [](void* one) { return one == nullptr; });
  };
  EXPECT_EQ(cuda_->abi, PIPEWRIGHT_CUDA_ABI);
  EXPECT_TRUE(are_all_there(&cuda_->why, cuda_ + 1));
}

/// The weights themselves are those of floats; what layers read is made by the same launch.
TEST_F(CudaBf16, UpdatesRoundWhatLayersRead) {
  const std::size_t n = 5001, plain = 1777;
  const Floats start = random_floats(n, 16), gradient = random_floats(n, 17);
  const pipewright_cuda_adamw f{0.9F, 0.1F, 0.99F, 0.01F, 0.02F, 1.5F, 1e-8F, 0.999F};
  const auto* const factors = up(std::vector<pipewright_cuda_adamw>{f, f});
  for (const bool adam : {false, true}) {
    const Both read = nothing(n);
    float* values[2] = {};
    for (const int k : {0, 1}) {
      void* const to = k == 1 ? read.narrow : nullptr;
      values[k] = up(start);
      float *const mean = up(Floats(n, 0.5F)), *const square = up(Floats(n, 0.5F));
      done(adam ? bf16().adamw(stream(), n, plain, factors, up(gradient), mean, square, values[k],
                               to)
                : bf16().sgd(stream(), n, 0.3F, up(gradient), values[k], to));
    }
    expect_same_bits(down(values[1], n), down(values[0], n), "values");
    expect_rounded({values[1], read.narrow, n}, "what layers read");
  }
}

/// Products of 16-bit numbers are exact in float32, so only the order of sums is cuBLAS's own.
TEST_F(CudaBf16, ProductsAddUpInFloats) {
  constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
  float* const workspace = up(Floats(kWorkspaceBytes / sizeof(float)));
  void* const blas =
      exec::cuda::required(*cuda_, cuda_->blas(stream(), 0, workspace, kWorkspaceBytes));
  const int m = 24, n = 40, k = 56;
  const Both a = both(4 * product(m, k), 18), b = both(4 * product(k, n), 19);
  for (const int transposed : {0, 1}) {
    for (const bool c_is_float : {false, true}) {
      for (const float beta : {0.0F, 1.0F}) {
        const Both c = both(4 * product(m, n), 20);
        pipewright_cuda_gemm g{};
        g.m = m, g.n = n, g.k = k, g.outer = g.inner = 2;
        g.alpha = 0.5F, g.beta = beta;
        g.a = {a.wide, transposed != 0 ? m : k, transposed, 2 * m * k, m * k};
        g.b = {b.wide, transposed != 0 ? k : n, transposed, 2 * k * n, k * n};
        g.c = c.wide, g.c_stride = n, g.c_outer_step = 2 * m * n, g.c_inner_step = m * n;
        float* const sums = up(down(c.wide, c.size));
        done(cuda_->gemm(blas, &g, PIPEWRIGHT_CUDA_FP32));
        g.a.data = a.narrow, g.b.data = b.narrow;
        g.c_is_float = c_is_float ? 1 : 0;
        g.c = c_is_float ? static_cast<void*>(sums) : c.narrow;
        done(cuda_->gemm(blas, &g, PIPEWRIGHT_CUDA_BF16));
        const Floats expected = down(c.wide, c.size);
        const Narrow kept = down(c.narrow, c.size);
        const Floats found = c_is_float ? down(sums, c.size) : Floats(kept.begin(), kept.end());
        const float most = c_is_float ? 1e-5F : 0x1p-7F;  // of numbers below 10
        for (std::size_t i = 0; i < found.size(); ++i)
          ASSERT_NEAR(found[i], expected[i], most * (1 + std::fabs(expected[i]))) << i;
      }
    }
  }
  cuda_->release_blas(blas);
}

/// The same launch adds a bias to rows of 16-bit numbers, or leaves the sums of dy's columns beside
/// a gradient that adds up in float32.
TEST_F(CudaBf16, ProductsBringBiasesAndSumsOfColumns) {
  constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
  float* const workspace = up(Floats(kWorkspaceBytes / sizeof(float)));
  void* const blas =
      exec::cuda::required(*cuda_, cuda_->blas(stream(), 0, workspace, kWorkspaceBytes));
  const int rows = 96, in = 64, out = 80;
  const Both x = both(product(rows, in), 22), w = both(product(in, out), 23),
             dy = both(product(rows, out), 24), bias = both(product(1, out), 25),
             y = nothing(product(rows, out)), dw = both(product(in, out), 26);
  const auto gemm = [&](int m, int n, int k) {
    pipewright_cuda_gemm g{};
    g.m = m, g.n = n, g.k = k, g.outer = g.inner = 1, g.alpha = 1, g.c_stride = n;
    return g;
  };
  const auto multiply = [&](const pipewright_cuda_gemm& g) {
    ASSERT_EQ(cuda_->gemm_fuses(blas, &g, PIPEWRIGHT_CUDA_BF16), 1);
    done(cuda_->gemm(blas, &g, PIPEWRIGHT_CUDA_BF16));
  };
  pipewright_cuda_gemm forward = gemm(rows, out, in);
  forward.a = {x.narrow, in, 0, 0, 0}, forward.b = {w.narrow, out, 0, 0, 0};
  forward.c = y.narrow, forward.bias = bias.narrow;
  multiply(forward);
  forward.a.data = x.wide, forward.b.data = w.wide, forward.c = y.wide, forward.bias = nullptr;
  done(cuda_->gemm(blas, &forward, PIPEWRIGHT_CUDA_FP32));
  done(fast().bias_forward(stream(), rows, out, bias.wide, y.wide));
  const Floats expected = down(y.wide, y.size);
  const Narrow found = down(y.narrow, y.size);
  for (std::size_t i = 0; i < y.size; ++i)
    ASSERT_NEAR(static_cast<float>(found[i]), expected[i], 0x1p-7F * (1 + std::fabs(expected[i])));

  pipewright_cuda_gemm weight = gemm(in, out, rows);
  weight.beta = 1, weight.c_is_float = 1;
  weight.a = {x.narrow, in, 1, 0, 0}, weight.b = {dy.narrow, out, 0, 0, 0};
  float* const sums = up(Floats(static_cast<std::size_t>(out), NAN));
  weight.c = up(down(dw.wide, dw.size)), weight.column_sums = sums;
  multiply(weight);
  const Floats kept = down(static_cast<float*>(weight.c), dw.size),
               columns = down(sums, static_cast<std::size_t>(out));
  weight.a.data = x.wide, weight.b.data = dy.wide, weight.c = dw.wide, weight.column_sums = nullptr;
  done(cuda_->gemm(blas, &weight, PIPEWRIGHT_CUDA_FP32));
  const Floats whole = down(dw.wide, dw.size), terms = down(dy.wide, dy.size);
  for (std::size_t i = 0; i < whole.size(); ++i)
    ASSERT_NEAR(kept[i], whole[i], 1e-4F * (1 + std::fabs(whole[i])));
  for (std::size_t j = 0; j < columns.size(); ++j) {
    double sum = 0;
    for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r)
      sum += static_cast<double>(terms[r * columns.size() + j]);
    ASSERT_NEAR(static_cast<double>(columns[j]), sum, 1e-4);
  }
  cuda_->release_blas(blas);
}

}  // namespace
}  // namespace pipewright::tests
