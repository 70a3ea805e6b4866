// The CPU operators at the sizes of gpt-tiny with four sequences a micro-batch, and a whole serial
// training step. Rows of 64 tokens; times are of one thread.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "exec/base/fixed_point.hpp"
#include "exec/devices/cpu/serial.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec {
namespace {

constexpr int kRows = 256, kWidth = 64, kInner = 256;

std::vector<float> values(std::size_t n) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i % 97) / 97.0F - 0.5F;
  return x;
}

void linear(benchmark::State& state) {
  const LinearShape shape{kRows, kWidth, kInner};
  const auto x = values(kRows * kWidth), w = values(kWidth * kInner);
  std::vector<float> y(kRows * kInner);
  for (auto _ : state) {
    linear_forward(shape, x.data(), w.data(), y.data());
    benchmark::DoNotOptimize(y.data());
  }
  state.counters["flops"] = benchmark::Counter(2.0 * kRows * kWidth * kInner,
                                               benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(linear);

void gelu(benchmark::State& state) {
  const auto x = values(kRows * kInner), dy = values(kRows * kInner);
  std::vector<float> y(x.size());
  for (auto _ : state) {
    if (state.range(0) == 0) {
      gelu_forward(x.size(), x.data(), y.data());
    } else {
      gelu_backward_input(x.size(), x.data(), dy.data(), y.data());
    }
    benchmark::DoNotOptimize(y.data());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(x.size()));
}
BENCHMARK(gelu)->ArgName("backward")->Arg(0)->Arg(1);

void attention(benchmark::State& state) {
  const AttentionShape shape{4, 64, kWidth, 4};
  const auto qkv = values(3 * kRows * kWidth), dcontext = values(kRows * kWidth);
  std::vector<float> p(shape.probabilities()), context(kRows * kWidth), dqkv(qkv.size());
  std::vector<float> scratch(64 * 64);
  attention_forward(shape, qkv.data(), p.data(), context.data());
  for (auto _ : state) {
    if (state.range(0) == 0) {
      attention_forward(shape, qkv.data(), p.data(), context.data());
    } else {
      attention_backward_input(shape, qkv.data(), p.data(), dcontext.data(), dqkv.data(),
                               scratch.data());
    }
    benchmark::ClobberMemory();
  }
}
BENCHMARK(attention)->ArgName("backward")->Arg(0)->Arg(1);

/// A micro-batch's part of a gradient, added to the sums of --numerics exact.
void add_to_sums(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  const auto part = values(n);
  FixedPointSums sums(n);
  for (auto _ : state) benchmark::DoNotOptimize(sums.add(part));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(n));
}
BENCHMARK(add_to_sums)->ArgName("n")->Arg(1 << 12)->Arg(1 << 20);

/// Sixteen sequences in micro-batches of the given size.
void gpt_tiny_step(benchmark::State& state) {
  const Model model = model_preset("gpt-tiny");
  const int samples = static_cast<int>(state.range(0)), micro_batches = 16 / samples;
  std::string text;
  for (int i = 0; i < 10000; ++i) text += static_cast<char>(i * i % 251);
  const auto data = text_source(model, {samples, micro_batches, 1}, text, "text");
  const auto numerics = state.range(1) == 1 ? Numerics::Exact : Numerics::Fast;
  SerialRun run(model, {samples, micro_batches, 1, {}, {.numerics = numerics}});
  int step = 0;
  for (auto _ : state) benchmark::DoNotOptimize(run.step(*data, step++));
}
BENCHMARK(gpt_tiny_step)
    ->ArgNames({"samples", "exact"})
    ->ArgsProduct({{1, 4, 16}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pipewright::exec
