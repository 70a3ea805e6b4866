// The canonical matrix product (--numerics exact) beside OpenBLAS, n x n x n and few rows, plain
// and with the operands lying as in I (b transposed) and W (a transposed). One thread.
#include <benchmark/benchmark.h>

#include <vector>

#include "exec/devices/cpu/kernels/canonical_gemm.hpp"
#include "exec/devices/cpu/kernels/gemm.hpp"

namespace pipewright::exec::cpu {
namespace {

enum class Lie : std::uint8_t { Plain, BTransposed, ATransposed };

template <class Multiply>
void measure(benchmark::State& state, Multiply multiply) {
  const int n = static_cast<int>(state.range(0)), m = static_cast<int>(state.range(1));
  const auto lie = static_cast<Lie>(state.range(2));
  const auto words = static_cast<std::size_t>(n) * static_cast<std::size_t>(n);
  const std::vector<float> a(words, 0.5F), b(words, 0.25F);
  std::vector<float> c(words);
  const MatrixView left{a.data(), lie == Lie::ATransposed ? m : n, lie == Lie::ATransposed};
  const MatrixView right{b.data(), n, lie == Lie::BTransposed};
  for (auto _ : state) {
    multiply(GemmSize{m, n, n}, left, right, c.data(), n);
    benchmark::ClobberMemory();
  }
  state.counters["flops"] =
      benchmark::Counter(2.0 * m * n * n, benchmark::Counter::kIsIterationInvariantRate);
}

void gemm_openblas(benchmark::State& state) {
  measure(state, [](const GemmSize& size, const MatrixView& a, const MatrixView& b, float* c,
                    int stride) { gemm(size, 1.0F, a, b, 0.0F, c, stride, Numerics::Fast); });
}

void gemm_canonical(benchmark::State& state, Isa isa) {
  measure(state, [isa](const GemmSize& size, const MatrixView& a, const MatrixView& b, float* c,
                       int stride) { canonical_gemm(isa, size, 1.0F, a, b, 0.0F, c, stride); });
}

void sizes(benchmark::internal::Benchmark* one) {
  one->ArgNames({"n", "rows", "lie"});
  for (const int n : {64, 256, 512, 1024}) {
    for (const int lie : {0, 1, 2}) one->Args({n, n, lie});
  }
  for (const int rows : {1, 3, 17}) one->Args({512, rows, 0});
}

[[maybe_unused]] const bool registered = [] {
  sizes(benchmark::RegisterBenchmark("gemm_openblas", gemm_openblas));
  for (const Isa isa : available_isas()) {
    if (isa == Isa::Scalar) continue;  // tens of times slower, and only there to be compared with
    const char* name = isa == Isa::Avx512 ? "gemm_canonical_avx512" : "gemm_canonical_avx2";
    sizes(benchmark::RegisterBenchmark(name, gemm_canonical, isa));
  }
  return true;
}();

}  // namespace
}  // namespace pipewright::exec::cpu
