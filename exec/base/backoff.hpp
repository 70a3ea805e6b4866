// Waiting for something that nobody announces: spins, then yields, then naps.
#pragma once

#include <cstdint>
#include <thread>

#include "exec/base/waiting.hpp"

namespace pipewright::exec::local {

/// One wait. Counts the time it has yielded for, not how often: on a busy machine each yield may
/// give a whole time slice away, while a sleeper is woken at once. One thread.
class Backoff {
 public:
  /// Lets a moment pass, longer ones as the wait goes on.
  void pause() {
    if (spins_ < kSpins) {
      ++spins_;
      return pause_core();
    }
    const std::int64_t now = steady_ns();
    if (yields_until_ == 0) yields_until_ = now + kYieldNs;
    if (now < yields_until_) return std::this_thread::yield();
    sleep_until_steady(now + kNapNs);
  }

 private:
  static constexpr int kSpins = 100;
  static constexpr std::int64_t kYieldNs = 2'000'000, kNapNs = 30'000;

  int spins_ = 0;
  std::int64_t yields_until_ = 0;
};

}  // namespace pipewright::exec::local
