// Latent attention against a slow and obvious version in double: F by value, I and W against
// central differences of it, with queries through a narrow layer and without.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/model/model.hpp"
#include "core/model/weights.hpp"
#include "exec/devices/cpu/host_ops.hpp"
#include "exec/layers/layer.hpp"
#include "exec/layers/ops.hpp"
#include "tests/unit/numeric.hpp"
#include "tests/unit/trained_layer.hpp"

namespace pipewright::exec {
namespace latent_attention_test {

using test::Doubles;
using test::expect_close;
using test::Floats;
using test::random_floats;
using test::widened;

constexpr int kWidth = 7, kSamples = 2, kSequence = 5, kRows = kSamples * kSequence;
constexpr double kBase = 100;

struct LatentCase {
  const char* name;
  int heads = 1;
  LatentWidths widths;
  bool recomputes = false;
};

Layer layer_of(const LatentCase& c) {
  Json widths = {{"key_value_rank", c.widths.key_value_rank},
                 {"plain", c.widths.plain},
                 {"rotary", c.widths.rotary},
                 {"value", c.widths.value}};
  if (c.widths.query_rank > 0) widths["query_rank"] = c.widths.query_rank;
  const Json layer = {{"kind", "latent_attention"},
                      {"in", kWidth},
                      {"heads", c.heads},
                      {"widths", widths},
                      {"rotary_base", kBase}};
  const Json model = {{"schema", "pipewright.model/1"}, {"layers", {layer}}, {"loss", "mse"}};
  return read_model(JsonCursor(model, "model")).layers.front();
}

/// y[rows][out] = x[rows][in] · w[in][out].
Doubles times(const Doubles& x, const double* w, int in, int out) {
  Doubles y;
  for (std::size_t r = 0; r < x.size() / static_cast<std::size_t>(in); ++r) {
    for (int j = 0; j < out; ++j) {
      double sum = 0;
      for (int i = 0; i < in; ++i)
        sum += x[r * static_cast<std::size_t>(in) + static_cast<std::size_t>(i)] * w[i * out + j];
      y.push_back(sum);
    }
  }
  return y;
}

Doubles normed(Doubles x, const double* scale, int width) {
  for (std::size_t r = 0; r < x.size(); r += static_cast<std::size_t>(width)) {
    double squares = 0;
    for (int j = 0; j < width; ++j)
      squares += x[r + static_cast<std::size_t>(j)] * x[r + static_cast<std::size_t>(j)];
    for (int j = 0; j < width; ++j)
      x[r + static_cast<std::size_t>(j)] *=
          scale[j] / std::sqrt(squares / width + static_cast<double>(kLayerNormEpsilon));
  }
  return x;
}

/// The numbers (2j, 2j + 1) by their row's place times kBase^(-2j / width).
void turn(double* part, int width, int place) {
  for (int j = 0; j < width; j += 2) {
    const double angle = place * std::pow(kBase, -static_cast<double>(j) / width);
    const double a = part[j], b = part[j + 1];
    part[j] = a * std::cos(angle) - b * std::sin(angle);
    part[j + 1] = a * std::sin(angle) + b * std::cos(angle);
  }
}

/// From the input and the arrays of the layer, one after another.
Doubles reference(const LatentCase& c, const Doubles& all) {
  const LatentWidths& w = c.widths;
  const int query = w.plain + w.rotary, key_value = w.plain + w.value;
  const Doubles x(all.begin(), all.begin() + kRows * kWidth);
  const double* at = all.data() + kRows * kWidth;
  const auto next = [&at](int size) { return std::exchange(at, at + size); };
  const auto through_rank = [&](int rank, int out) {
    const double *down = next(kWidth * rank), *scale = next(rank), *up = next(rank * out);
    return times(normed(times(x, down, kWidth, rank), scale, rank), up, rank, out);
  };
  Doubles q = w.query_rank > 0 ? through_rank(w.query_rank, c.heads * query)
                               : times(x, next(kWidth * c.heads * query), kWidth, c.heads * query);
  const Doubles kv = through_rank(w.key_value_rank, c.heads * key_value);
  Doubles rotary_key = times(x, next(kWidth * w.rotary), kWidth, w.rotary);
  for (int row = 0; row < kRows; ++row) {
    turn(rotary_key.data() + row * w.rotary, w.rotary, row % kSequence);
    for (int h = 0; h < c.heads; ++h)
      turn(q.data() + (row * c.heads + h) * query + w.plain, w.rotary, row % kSequence);
  }
  Doubles context(static_cast<std::size_t>(kRows * c.heads * w.value), 0);
  for (int row = 0; row < kRows; ++row) {
    for (int h = 0; h < c.heads; ++h) {
      double* const out = context.data() + (row * c.heads + h) * w.value;
      const double* const own = q.data() + (row * c.heads + h) * query;
      double sum = 0;
      for (int other = row - row % kSequence; other <= row; ++other) {
        const double* const key = kv.data() + (other * c.heads + h) * key_value;
        double score = 0;
        for (int j = 0; j < w.plain; ++j) score += own[j] * key[j];
        for (int j = 0; j < w.rotary; ++j)
          score += own[w.plain + j] * rotary_key[static_cast<std::size_t>(other * w.rotary + j)];
        const double weight = std::exp(score / std::sqrt(query));
        sum += weight;
        for (int j = 0; j < w.value; ++j) out[j] += weight * key[w.plain + j];
      }
      for (int j = 0; j < w.value; ++j) out[j] /= sum;
    }
  }
  return times(context, next(c.heads * w.value * kWidth), c.heads * w.value, kWidth);
}

class LatentAttentionLayers : public testing::TestWithParam<LatentCase> {};

TEST_P(LatentAttentionLayers, AgreeWithTheReference) {
  const Layer layer = layer_of(GetParam());
  BufferPool pool;
  cpu::HostOps ops(pool, Numerics::Fast);
  const auto made = make_layer(layer, {.extent = {kSamples, kSequence},
                                       .ops = &ops,
                                       .path = "0",
                                       .width = kWidth,
                                       .recomputes_attention = GetParam().recomputes});
  const Floats dy = random_floats(kRows * kWidth, 99);
  const test::TrainedLayer trained = test::train_once(*made, ops, kRows * kWidth, dy);
  EXPECT_EQ(static_cast<double>(trained.at.size() - trained.inputs), parameter_count(layer));
  expect_close(trained.y, reference(GetParam(), widened(trained.at)), 2e-5, "F");
  const auto from_all = [](const Doubles& at) { return reference(GetParam(), at); };
  test::expect_gradients(trained, from_all, dy, 5e-5);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, LatentAttentionLayers,
    testing::Values(
        LatentCase{"deepseek",
                   3,
                   {.query_rank = 4, .key_value_rank = 3, .plain = 4, .rotary = 2, .value = 3}},
        LatentCase{
            "straightQueries", 2, {.key_value_rank = 5, .plain = 2, .rotary = 4, .value = 6}},
        LatentCase{"oneHead",
                   1,
                   {.query_rank = 9, .key_value_rank = 1, .plain = 1, .rotary = 6, .value = 1}},
        LatentCase{"recomputed",
                   3,
                   {.query_rank = 4, .key_value_rank = 3, .plain = 4, .rotary = 2, .value = 3},
                   true}),
    [](const auto& one) { return one.param.name; });

}  // namespace latent_attention_test
}  // namespace pipewright::exec
