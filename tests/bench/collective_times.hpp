// How the programs of bench_collectives take times, all in one way: of calls one after another, in
// batches, and the median of the batches. Elements are 0 and stay so.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <vector>

namespace pipewright::bench {

inline constexpr std::size_t kLeastBytes = 1024;

struct Batches {
  int batches, calls;
};

/// tests/bench/collectives_gloo.py has the same numbers.
inline Batches batches_of(std::size_t bytes) {
  const std::size_t calls = std::clamp<std::size_t>((std::size_t{1} << 20U) / bytes, 1, 50);
  return {bytes > (std::size_t{16} << 20U) ? 5 : 11, static_cast<int>(calls)};
}

/// Median seconds of a call, after one batch that is not counted.
inline double seconds_of_call(std::size_t bytes, const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  const auto [batches, calls] = batches_of(bytes);
  std::vector<double> seconds;
  for (int batch = 0; batch <= batches; ++batch) {
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    const double took = std::chrono::duration<double>(Clock::now() - begin).count();
    if (batch > 0) seconds.push_back(took / calls);
  }
  std::nth_element(seconds.begin(), seconds.begin() + batches / 2, seconds.end());
  return seconds[static_cast<std::size_t>(batches / 2)];
}

inline void print_time(std::size_t bytes, double seconds) {
  std::printf("%zu %.9f\n", bytes, seconds);
  std::fflush(stdout);
}

}  // namespace pipewright::bench
