// Runs independent pieces of work on several threads. The threads live only as long as the call.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

namespace pipewright::planner {

/// Calls work(0) … work(count - 1), each once, on at most `threads` threads. Any thread may take
/// any piece, so the pieces must not touch each other's results. If pieces throw, the exception of
/// the lowest index that was seen is thrown again after all threads have ended.
template <class Work>
void for_each_index(std::size_t count, int threads, const Work& work) {
  std::vector<std::exception_ptr> errors(count);
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  const auto loop = [&] {
    for (std::size_t i = next++; i < count && !failed; i = next++) {
      try {
        work(i);
      } catch (...) {
        errors[i] = std::current_exception();
        failed = true;
      }
    }
  };
  {
    const auto helpers = std::min(count, static_cast<std::size_t>(std::max(1, threads)));
    std::vector<std::jthread> pool;
    for (std::size_t t = 1; t < helpers; ++t) pool.emplace_back(loop);
    loop();
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace pipewright::planner
