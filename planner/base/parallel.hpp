// Runs independent pieces of work on several threads. The threads live only as long as the call.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace pipewright::planner {

/// Something to be done now and then while the caller waits for work; nothing: it has none.
using Meanwhile = std::function<void()>;

/// How long a caller waits before it is asked again.
inline constexpr std::chrono::milliseconds kMeanwhileEvery{250};

/// Calls work(0) … work(count - 1), each once, on at most `threads` threads. Any thread may take
/// any piece, so the pieces must not touch each other's results. If pieces throw, the exception of
/// the lowest index that was seen is thrown again after all threads have ended. With `meanwhile`
/// the calling thread takes no piece; it waits, and calls that every quarter of a second.
template <class Work>
void for_each_index(std::size_t count, int threads, const Work& work,
                    const Meanwhile& meanwhile = {}) {
  std::vector<std::exception_ptr> errors(count + 1);  // the last one is that of `meanwhile`
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::condition_variable ended;
  const auto helpers = std::min(count, static_cast<std::size_t>(std::max(1, threads)));
  std::size_t working = helpers;
  const auto loop = [&] {
    for (std::size_t i = next++; i < count && !failed; i = next++) {
      try {
        work(i);
      } catch (...) {
        errors[i] = std::current_exception();
        failed = true;
      }
    }
    const std::lock_guard lock(mutex);
    if (--working == 0) ended.notify_one();
  };
  if (helpers > 0) {
    std::vector<std::jthread> pool;
    for (std::size_t t = meanwhile ? 0 : 1; t < helpers; ++t) pool.emplace_back(loop);
    if (!meanwhile) loop();
    std::unique_lock lock(mutex);
    while (meanwhile && !failed &&
           !ended.wait_for(lock, kMeanwhileEvery, [&] { return working == 0; })) {
      lock.unlock();
      try {
        meanwhile();
      } catch (...) {
        errors[count] = std::current_exception();
        failed = true;
      }
      lock.lock();
    }
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace pipewright::planner
