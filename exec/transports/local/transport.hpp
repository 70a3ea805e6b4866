// The transport between ranks that are threads of one process. A message is handed over, never
// copied. One lock guards the Exchange; it is held for well under a microsecond a call
// (docs/decisions/0003-exec-runtime.md says why one is enough).
//
// Waiting goes from spinning to yielding to sleeping, so that more ranks than cores work.
// Under ClockKind::Wall time is the machine's; messages that take time (the paced device) end at
// moments that are computed when they start, and whoever waits sleeps until then.
// Under ClockKind::Virtual nobody sleeps: when every rank waits, the time jumps to the next moment
// at which something happens, so a run takes as long as its bookkeeping and every time is exact.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/costs/costs.hpp"
#include "exec/runtime/part_table.hpp"
#include "exec/runtime/transport.hpp"
#include "exec/transports/local/exchange.hpp"

namespace pipewright::exec::local {

enum class ClockKind : std::uint8_t { Wall, Virtual };

/// Transfers as the cost table has them (the paced device).
MessageCosts paced_messages(const Program& program, const CostTable& costs);
/// Transfers that take what they take; the sizes still count against credit in bytes.
MessageCosts real_messages(const Program& program, const CostTable& costs);

class LocalTransport final : public Transport {
 public:
  /// The Program must outlive it.
  LocalTransport(const Program& program, MessageCosts costs, ClockKind clock = ClockKind::Wall);

  std::int64_t now() const override;
  void sleep_until(RankId rank, std::int64_t deadline) override;

  std::vector<RankId> local_ranks() const override;
  void meet(RankId rank, const std::function<void()>& between) override;
  void issue(RankId rank, InstructionId end, PayloadPtr data) override;
  void provide(RankId rank, InstructionId send, PayloadPtr data) override;
  void contribute(RankId rank, InstructionId member, PartPtr part) override;
  std::vector<PartPtr> gathered(RankId rank, InstructionId member) override;
  void wait(RankId rank, InstructionId id) override;
  PayloadPtr take(RankId rank, InstructionId recv) override;
  void stop() noexcept override;
  bool stands_still_within(std::int64_t timeout_ns) override;
  void end_watch() noexcept override;
  bool awaits_time(RankId rank) const override;
  std::uint64_t ended_count() const override { return ended_count_.load(); }
  void report(Timeline& timeline, Progress& progress) const override;

 private:
  using SteadyClock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;

  /// What a rank sleeps for; guarded by mutex_.
  struct Rank {
    std::condition_variable wake;
    bool waits = false;                        // is counted in waiting_
    InstructionId wanted = kNoInstruction;     // wakes when this has ended
    std::optional<std::int64_t> sleeps_until;  // virtual clock only
  };

  Rank& rank_at(RankId rank) { return ranks_[static_cast<std::size_t>(rank.value)]; }
  void throw_if_stopped() const;
  bool is_virtual() const { return clock_ == ClockKind::Virtual; }

  void look_at_all(Lock& lock, const std::function<void()>& between);
  void after_change();
  void wake_ended();
  void wake(Rank& rank);
  void begin_waiting(Rank& rank);
  void advance();
  void declare_stuck();
  bool spin_for(InstructionId id) const;
  void sleep_for(Lock& lock, Rank& self, InstructionId id);
  void sleep_on_wall(Lock& lock, Rank& self, InstructionId id);

  const Program& program_;
  const ClockKind clock_;

  mutable std::mutex mutex_;
  Exchange exchange_;        // guarded by mutex_, but for has_ended()
  PartTable parts_;          // guarded by mutex_
  std::vector<Rank> ranks_;  // guarded by mutex_
  int live_ = 0;             // ranks inside the step; guarded, like the next ones
  int waiting_ = 0;          // ranks that cannot go on by themselves
  bool keeps_time_ = false;  // wall clock: some rank sleeps until the next event
  int arrived_ = 0;
  std::uint64_t meeting_ = 0;
  bool looks_at_all_ = false;  // the last one that came to the meeting runs `between`
  std::condition_variable met_;
  bool stuck_ = false, watch_ended_ = false;
  std::condition_variable watch_;

  std::atomic<bool> stopped_{false};
  std::atomic<std::int64_t> begin_ns_{0};  // of the step, on the steady clock
  std::atomic<std::int64_t> virtual_now_{0};
  std::atomic<std::int64_t> next_event_ns_{0};  // wall clock: the earliest event, or the far future
  std::atomic<std::uint64_t> ended_count_{0};
};

}  // namespace pipewright::exec::local
