// The kernels of mixtures of experts against the CPU's operators: bit for bit, whatever the router
// and however many rows are dropped; in the table of other numerics sums of rows nearly, and of
// bfloat16 the same rounded once.
#include <gtest/gtest.h>

#include "core/model/experts.hpp"
#include "exec/devices/cuda/bfloat16.hpp"
#include "exec/layers/expert_ops.hpp"
#include "tests/support/cuda_kernel_fixture.hpp"

namespace pipewright::tests {
namespace expert_cases {

using exec::RouterShape;
using exec::Routes;
using exec::cuda::Bfloat16;
using Narrow = std::vector<Bfloat16>;
using Words = std::vector<std::int32_t>;

/// Rows of a rank, of chunks in a sequence that others have the rest of.
struct RoutedCase {
  RouterShape shape;
  float spread = 1;  // of logits
};

RouterShape chunks_of(int rows, const ExpertChoice& choice, int places) {
  return {rows, choice, {.samples = 2, .sequence = rows / 2, .context = {1, places}}};
}

std::vector<RoutedCase> routed_cases() {
  const ExpertChoice deepseek{.experts = 64,
                              .top_k = 6,
                              .scores = RouterScores::Sigmoid,
                              .scaling = 2.5,
                              .groups = 8,
                              .top_groups = 3,
                              .balance_loss = 0.02};
  const ExpertChoice dropping{
      .experts = 5, .top_k = 3, .capacity_factor = 0.7, .balance_loss = 0.1, .z_loss = 0.3};
  return {{{150, {.experts = 8, .top_k = 2, .balance_loss = 0.05, .z_loss = 0.01}}},
          {{1, {.experts = 3, .top_k = 1, .normalises = false}}},
          {{200, {.experts = 300, .top_k = 8, .scores = RouterScores::Sigmoid, .z_loss = 0.1}}, 20},
          {{130, deepseek}},
          {{257, dropping}, 3},
          {{64, {.experts = 4, .top_k = 4, .normalises = false}}, 0},
          {chunks_of(280, dropping, 2), 2}};
}

class CudaExpertKernels : public CudaKernels {
 protected:
  const pipewright_cuda_kernels& fast() const { return cuda_->fast; }
  const pipewright_cuda_kernels& bf16() const { return cuda_->bf16; }
};

std::size_t blocks_of(const RouterShape& shape) {
  const int of_chunk = shape.rows / shape.chunks();
  return product(shape.chunks() * (of_chunk / PIPEWRIGHT_CUDA_ROUTED_ROWS + 1),
                 shape.choice.experts);
}
std::int64_t capacity_of(const RouterShape& shape) {
  const bool drops = shape.choice.capacity_factor > 0;
  return drops ? expert_capacity(shape.choice, shape.all_rows()) : -1;
}
pipewright_cuda_router router_of(const ExpertChoice& choice) {
  return {
      choice.experts, choice.top_k,      choice.scores == RouterScores::Sigmoid, choice.normalises,
      choice.groups,  choice.top_groups, static_cast<float>(choice.scaling)};
}

/// What the CPU makes of a case.
struct OnCpu {
  explicit OnCpu(const RoutedCase& of, bool has_bias = false)
      : shape(of.shape),
        words(route_words(of.shape), 77),
        routes(routes_in(of.shape, words.data())),
        logits(random_floats(product(of.shape.rows, of.shape.choice.experts), 3)),
        bias(random_floats(product(1, of.shape.choice.experts), 4)),
        earlier(static_cast<std::size_t>(of.shape.runs()), 2),
        weights(of.shape.pairs(), NAN) {
    for (float& one : logits) one *= of.spread;
    Floats scratch(shape.scratch());
    route(shape, logits.data(), has_bias ? bias.data() : nullptr, weights.data(), routes,
          scratch.data());
    place_rows(shape, shape.place.parts() > 1 ? earlier.data() : nullptr, routes);
  }
  Words experts() const { return {routes.expert, routes.expert + shape.pairs()}; }

  RouterShape shape;
  Words words;
  Routes routes;
  Floats logits, bias, earlier, weights;
};

TEST_F(CudaExpertKernels, RoutersChooseWhomTheCpuChooses) {
  for (const RoutedCase& one : routed_cases()) {
    for (const bool has_bias : {false, true}) {
      const OnCpu cpu(one, has_bias);
      const RouterShape& s = cpu.shape;
      const pipewright_cuda_router router = router_of(s.choice);
      for (const auto* table : {&kernels(), &fast(), &bf16()}) {
        float *const weights = up(Floats(s.pairs(), NAN)), *const sums = up(Floats(
                                                               product(s.rows, s.choice.groups),
                                                               NAN));
        std::int32_t* const expert = up(Words(s.pairs(), -7));
        done(table->route(stream(), s.rows, &router, up(cpu.logits),
                          has_bias ? up(cpu.bias) : nullptr, sums, weights, expert));
        EXPECT_EQ(down(expert, s.pairs()), cpu.experts());
        expect_same_bits(down(weights, s.pairs()), cpu.weights, "weights");
      }
    }
  }
}

/// Every place is one of the rows' then, whatever it means.
TEST_F(CudaExpertKernels, LogitsThatAreNoNumbersChooseExpertsAllTheSame) {
  const RoutedCase one{{3, {.experts = 6, .top_k = 4, .groups = 3, .top_groups = 2}}};
  const RouterShape& s = one.shape;
  const pipewright_cuda_router router = router_of(s.choice);
  std::int32_t* const expert = up(Words(s.pairs(), -7));
  done(kernels().route(stream(), s.rows, &router, up(Floats(18, NAN)), nullptr, up(Floats(9, NAN)),
                       up(Floats(s.pairs(), NAN)), expert));
  for (const std::int32_t found : down(expert, s.pairs())) {
    EXPECT_GE(found, 0);
    EXPECT_LT(found, s.choice.experts);
  }
}

TEST_F(CudaExpertKernels, RowsHaveTheCpusPlaces) {
  for (const RoutedCase& one : routed_cases()) {
    const OnCpu cpu(one);
    const RouterShape& s = cpu.shape;
    Words found = cpu.words;
    const Routes at = routes_in(s, found.data());
    std::fill(found.begin(), found.begin() + s.runs() + 1, -7);
    std::fill(at.place, at.place + 2 * s.pairs(), -7);
    std::int32_t* const words = up(found);
    const Routes on = routes_in(s, words);
    std::int32_t* const counts = up(Words(blocks_of(s), -7));
    done(kernels().place_rows(stream(), s.rows, s.choice.top_k, s.chunks(), s.choice.experts,
                              capacity_of(s), s.place.parts() > 1 ? up(cpu.earlier) : nullptr,
                              on.expert, counts, on.begin, on.place, on.row));
    EXPECT_EQ(down(words, found.size()), cpu.words);
    Floats chosen(product(1, s.choice.experts), 3), of_chunks(product(1, s.runs()), NAN);
    float *const dev_chosen = up(chosen), *const dev_chunks = up(of_chunks);
    count_choices(s, cpu.routes, chosen.data());
    count_choices_of_chunks(s, cpu.routes, of_chunks.data());
    done(kernels().count_choices(stream(), s.rows, s.choice.top_k, 1, s.choice.experts, on.expert,
                                 counts, 1, dev_chosen));
    expect_same_bits(down(dev_chosen, chosen.size()), chosen, "choices");
    done(kernels().count_choices(stream(), s.rows, s.choice.top_k, s.chunks(), s.choice.experts,
                                 on.expert, counts, 0, dev_chunks));
    expect_same_bits(down(dev_chunks, of_chunks.size()), of_chunks, "choices of chunks");
  }
}

TEST_F(CudaExpertKernels, BiasesMoveTowardsExpertsThatWereChosenLess) {
  const Floats counts{3, 0, 2, 7, 3, 3};
  Floats bias = random_floats(counts.size(), 11);
  float* const dev_bias = up(bias);
  const int experts = static_cast<int>(counts.size());
  exec::balance(experts, 0.001F, counts.data(), bias.data());
  done(kernels().balance(stream(), experts, 0.001F, up(counts), dev_bias));
  expect_same_bits(down(dev_bias, bias.size()), bias, "bias");
}

TEST_F(CudaExpertKernels, LogitsHaveTheCpusGradients) {
  constexpr float kShare = 0.25F;
  for (const RoutedCase& one : routed_cases()) {
    const OnCpu cpu(one);
    const RouterShape& s = cpu.shape;
    const ExpertChoice& choice = s.choice;
    const Floats dweights = random_floats(s.pairs(), 5);
    Floats choices(product(1, choice.experts), 0.0F), expected(cpu.logits.size(), NAN),
        scratch(s.scratch());
    count_choices(s, cpu.routes, choices.data());
    route_backward(s, kShare, cpu.logits.data(), cpu.weights.data(), cpu.routes, choices.data(),
                   dweights.data(), expected.data(), scratch.data());
    const float of_row = kShare / static_cast<float>(s.all_rows());
    const pipewright_cuda_router router = router_of(choice);
    for (const bool in_place : {false, true}) {
      float* const logits = up(cpu.logits);
      float* const found = in_place ? logits : up(Floats(cpu.logits.size(), NAN));
      done(kernels().route_backward(
          stream(), s.rows, &router,
          static_cast<float>(choice.balance_loss * choice.experts) * of_row,
          2.0F * static_cast<float>(choice.z_loss) * of_row,
          static_cast<float>(s.all_rows() * choice.top_k), logits, up(cpu.weights),
          up(cpu.experts()), choice.balance_loss > 0 ? up(choices) : nullptr, up(dweights), found));
      expect_same_bits(down(found, expected.size()), expected, "gradient of logits");
    }
  }
}

/// A width of whole packs, and others.
constexpr int kWidths[] = {1, 7, 16, 64, 300};

TEST_F(CudaExpertKernels, RowsGoToTheirPlacesAndBack) {
  for (const RoutedCase& one : routed_cases()) {
    const OnCpu cpu(one);
    const RouterShape& s = cpu.shape;
    const std::int32_t* const words = up(cpu.words);
    const Routes on = routes_in(s, const_cast<std::int32_t*>(words));
    const float* const weights = up(cpu.weights);
    for (const int width : kWidths) {
      const std::size_t rows = product(s.rows, width), sorted = s.pairs() * product(1, width);
      const Floats x = random_floats(rows, 6), z = random_floats(sorted, 7);
      Floats gathered(sorted, NAN), summed(rows, NAN), weighed(rows, NAN), dz(sorted, NAN),
          dweights(s.pairs(), NAN);
      gather_rows(s, width, cpu.routes, x.data(), gathered.data());
      sum_rows(s, width, cpu.routes, z.data(), summed.data());
      weigh_rows(s, width, cpu.routes, cpu.weights.data(), z.data(), weighed.data());
      weigh_rows_backward(s, width, cpu.routes, cpu.weights.data(), x.data(), z.data(), dz.data(),
                          dweights.data());
      for (const auto* table : {&kernels(), &fast()}) {
        float *const to_sorted = up(Floats(sorted, NAN)), *const to_rows = up(Floats(rows, NAN)),
                     *const dev_z = up(z), *const of_weights = up(Floats(s.pairs(), NAN));
        done(table->gather_rows(stream(), s.pairs(), width, on.row, up(x), to_sorted));
        expect_same_bits(down(to_sorted, sorted), gathered, "gathered");
        done(table->weigh_rows(stream(), s.rows, s.choice.top_k, width, on.place, nullptr, dev_z,
                               to_rows));
        expect_same_bits(down(to_rows, rows), summed, "summed");
        done(table->weigh_rows(stream(), s.rows, s.choice.top_k, width, on.place, weights, dev_z,
                               to_rows));
        expect_same_bits(down(to_rows, rows), weighed, "weighed");
        done(table->weigh_rows_backward(stream(), s.rows, s.choice.top_k, width, on.place, weights,
                                        up(x), dev_z, dev_z, of_weights));
        done(table->clear_behind(stream(), s.pairs(), width, on.begin + s.runs(), dev_z));
        expect_same_bits(down(dev_z, sorted), dz, "gradient of rows");
        const Floats found = down(of_weights, s.pairs());
        if (table == &kernels()) {
          expect_same_bits(found, dweights, "gradient of weights");
          continue;
        }
        for (std::size_t i = 0; i < found.size(); ++i)
          ASSERT_NEAR(found[i], dweights[i], 1e-5F * static_cast<float>(width)) << i;
      }
    }
  }
}

Floats wide(const Narrow& numbers) { return {numbers.begin(), numbers.end()}; }
Floats rounded(const Floats& numbers) { return wide({numbers.begin(), numbers.end()}); }

TEST_F(CudaExpertKernels, Bfloat16IsTheFastTableRoundedOnce) {
  for (const RoutedCase& one : routed_cases()) {
    const OnCpu cpu(one);
    const RouterShape& s = cpu.shape;
    const Routes on = routes_in(s, up(cpu.words));
    const float* const weights = up(cpu.weights);
    for (const int width : kWidths) {
      const std::size_t rows = product(s.rows, width), sorted = s.pairs() * product(1, width);
      const Floats x = rounded(random_floats(rows, 6)), z = rounded(random_floats(sorted, 7));
      float *const y = up(Floats(sorted, NAN)), *const dw = up(Floats(s.pairs(), NAN)),
                   *const other = up(Floats(s.pairs(), NAN));
      Bfloat16* const out = up(Narrow(sorted));
      const auto narrow = [&](const Floats& from) { return up(Narrow(from.begin(), from.end())); };
      const auto expect_rounded = [&](std::size_t n, const char* what) {
        expect_same_bits(wide(down(out, n)), rounded(down(y, n)), what);
      };
      done(fast().gather_rows(stream(), s.pairs(), width, on.row, up(x), y));
      done(bf16().gather_rows(stream(), s.pairs(), width, on.row, narrow(x), out));
      expect_rounded(sorted, "gathered");
      for (const float* by : {weights, static_cast<const float*>(nullptr)}) {
        done(fast().weigh_rows(stream(), s.rows, s.choice.top_k, width, on.place, by, up(z), y));
        done(bf16().weigh_rows(stream(), s.rows, s.choice.top_k, width, on.place, by, narrow(z),
                               out));
        expect_rounded(rows, "weighed");
      }
      done(fast().weigh_rows_backward(stream(), s.rows, s.choice.top_k, width, on.place, weights,
                                      up(x), up(z), y, dw));
      done(bf16().weigh_rows_backward(stream(), s.rows, s.choice.top_k, width, on.place, weights,
                                      narrow(x), narrow(z), out, other));
      done(fast().clear_behind(stream(), s.pairs(), width, on.begin + s.runs(), y));
      done(bf16().clear_behind(stream(), s.pairs(), width, on.begin + s.runs(), out));
      expect_rounded(sorted, "gradient of rows");
      expect_same_bits(down(other, s.pairs()), down(dw, s.pairs()), "gradient of weights");
    }
    const Floats bias = rounded(random_floats(product(1, s.choice.experts), 8));
    float *const logits = up(cpu.logits), *const others = up(cpu.logits);
    done(fast().router_bias(stream(), s.rows, s.choice.experts, up(bias), logits));
    done(bf16().router_bias(stream(), s.rows, s.choice.experts,
                            up(Narrow(bias.begin(), bias.end())), others));
    expect_same_bits(down(others, cpu.logits.size()), down(logits, cpu.logits.size()), "biased");
  }
}

/// Rows of an expert begin where those of the one before end, which may be in the middle of a pack.
TEST_F(CudaExpertKernels, BiasesOfRowsThatBeginAnywhere) {
  constexpr int kRows = 9, kWidth = 7;
  const std::size_t n = product(kRows, kWidth);
  const Floats bias = random_floats(kWidth, 9);
  for (int first = 0; first < 5; ++first) {
    Floats y = random_floats(n, 10);
    float* const dev_y = up(y);
    exec::bias_forward(kRows - 1, kWidth, bias.data(), y.data() + first);
    done(kernels().bias_forward(stream(), kRows - 1, kWidth, up(bias), dev_y + first));
    expect_same_bits(down(dev_y, n), y, "biased");
  }
}

}  // namespace expert_cases
}  // namespace pipewright::tests
