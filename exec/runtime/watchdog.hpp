// Ends a run that cannot go on. A thread of its own looks at the transport; when it is certain that
// nothing can happen any more, when nothing has ended for too long, or when the user interrupts, it
// stops the transport, which makes every rank leave the run. It never kills and never detaches a
// thread: if a rank does not leave, the caller is told and may end the process.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "exec/runtime/peers.hpp"
#include "exec/runtime/rank.hpp"
#include "exec/runtime/transport.hpp"

namespace pipewright::exec {

enum class StopCause : std::uint8_t {
  None,
  StandsStill,  // every rank waits and nothing is under way: a fact, not a guess
  NoProgress,   // nothing has ended for the time allowed; a rank may still compute
  Interrupted,
  Failed,     // a rank has thrown and stopped the others
  PeerLost,   // another process of the run is gone
  Elsewhere,  // another process has ended the run and knows why
};

/// Made on the watchdog's thread; they must not throw.
struct WatchdogCalls {
  std::function<void(StopCause)> before_stop;  // ranks still are where they were
  std::function<void()> overdue;               // the grace is over, and not all have left
  std::int64_t grace_ns = 0;                   // from the stop
};

class Watchdog {
 public:
  /// `interrupted` may be null. All must outlive it.
  Watchdog(Transport& transport, const Record& record, std::int64_t patience_ns,
           const std::atomic<bool>* interrupted, WatchdogCalls calls);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Ends the watch and says why the run was stopped; None if it was not.
  StopCause finish();

 private:
  void watch();
  void wait_for_ranks();
  StopCause look(std::int64_t pause_ns);
  StopCause look_at_peers(Peers& peers) const;

  Transport& transport_;
  const Record& record_;
  const std::int64_t patience_ns_;
  const std::atomic<bool>* interrupted_;
  const WatchdogCalls calls_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::atomic<bool> over_{false};
  std::uint64_t last_seen_ = 0;
  std::int64_t last_change_ns_ = 0, last_look_ns_ = 0;
  StopCause cause_ = StopCause::None;  // written by the thread, read after joining it
  std::thread thread_;
};

}  // namespace pipewright::exec
