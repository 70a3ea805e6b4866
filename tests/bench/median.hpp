// The one way in which the tables of this folder take a time.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

namespace pipewright {

/// Median seconds of `runs` calls after one that is not counted.
inline double median_seconds(int runs, const std::function<void()>& body) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  for (int i = 0; i <= runs; ++i) {
    const auto begin = Clock::now();
    body();
    if (i > 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + runs / 2, seconds.end());
  return seconds[static_cast<std::size_t>(runs / 2)];
}

}  // namespace pipewright
