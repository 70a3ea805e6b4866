#include "exec/base/waiting.hpp"

#include <sys/prctl.h>
#include <time.h>

#include <chrono>
#include <thread>

namespace pipewright::exec::local {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

}  // namespace

std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::int64_t thread_cpu_ns() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::int64_t{used.tv_sec} * kSecond + used.tv_nsec;
}

void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#else
  std::this_thread::yield();
#endif
}

void sleep_until_steady(std::int64_t deadline_ns) {
  timespec until{};
  until.tv_sec = static_cast<time_t>(deadline_ns / kSecond);
  until.tv_nsec = static_cast<long>(deadline_ns % kSecond);
  // A signal ends the sleep early; every caller looks at the clock again.
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

void ask_for_exact_sleeps() { prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }

}  // namespace pipewright::exec::local
