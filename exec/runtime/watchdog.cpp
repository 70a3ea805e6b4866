#include "exec/runtime/watchdog.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "exec/base/waiting.hpp"

namespace pipewright::exec {
namespace {

// How soon an interruption is seen.
constexpr std::int64_t kLookNs = 20'000'000;
// Between two looks: the process was stopped.
constexpr std::int64_t kPauseNs = 1'000'000'000;

}  // namespace

Watchdog::Watchdog(Transport& transport, const Record& record, std::int64_t patience_ns,
                   const std::atomic<bool>* interrupted, WatchdogCalls calls)
    : transport_(transport),
      record_(record),
      patience_ns_(patience_ns),
      interrupted_(interrupted),
      calls_(std::move(calls)),
      last_change_ns_(local::steady_ns()),
      last_look_ns_(last_change_ns_),
      thread_([this] { watch(); }) {}

Watchdog::~Watchdog() { finish(); }

StopCause Watchdog::finish() {
  if (thread_.joinable()) {
    {
      const std::scoped_lock lock(mutex_);
      over_.store(true);
    }
    ended_.notify_all();
    transport_.end_watch();
    thread_.join();
  }
  return cause_;
}

void Watchdog::watch() {
  const std::int64_t pause_ns = std::clamp(patience_ns_ / 4, std::int64_t{1'000'000}, kLookNs);
  while (!over_.load() && cause_ == StopCause::None) cause_ = look(pause_ns);
  if (cause_ == StopCause::None) return;
  calls_.before_stop(cause_);
  transport_.stop();
  wait_for_ranks();
}

void Watchdog::wait_for_ranks() {
  std::unique_lock lock(mutex_);
  const auto home = [this] { return over_.load(); };
  if (ended_.wait_for(lock, std::chrono::nanoseconds(calls_.grace_ns), home)) return;
  lock.unlock();
  calls_.overdue();
}

/// Before interruptions: whoever starts processes tends to interrupt all when one of them dies.
StopCause Watchdog::look_at_peers(Peers& peers) const {
  if (!peers.lost(patience_ns_).empty()) return StopCause::PeerLost;
  return peers.ended_elsewhere() ? StopCause::Elsewhere : StopCause::None;
}

StopCause Watchdog::look(std::int64_t pause_ns) {
  if (transport_.stands_still_within(pause_ns)) return StopCause::StandsStill;
  if (record_.failed.load()) return StopCause::Failed;
  Peers* const peers = transport_.peers();
  if (peers != nullptr) {
    const StopCause cause = look_at_peers(*peers);
    if (cause != StopCause::None) return cause;
  }
  if (interrupted_ != nullptr && interrupted_->load()) return StopCause::Interrupted;
  std::uint64_t seen = record_.computations.load() + transport_.ended_count();
  if (peers != nullptr) {
    peers->post_progress(seen);
    if (peers->process() != 0) return StopCause::None;  // process 0 judges for all
    seen += peers->progress_elsewhere();
  }
  const std::int64_t now = local::steady_ns();
  // A process that was itself stopped has not waited meanwhile.
  const std::int64_t pause = now - std::exchange(last_look_ns_, now);
  if (pause > kPauseNs) last_change_ns_ += pause;
  if (seen != last_seen_ || record_.between_steps.load()) {
    last_seen_ = seen;
    last_change_ns_ = now;
  }
  if (now - last_change_ns_ <= patience_ns_) return StopCause::None;
  // If another process has been silent too, that is why.
  const bool silent = peers != nullptr && !peers->lost(0).empty();
  return silent ? StopCause::PeerLost : StopCause::NoProgress;
}

}  // namespace pipewright::exec
