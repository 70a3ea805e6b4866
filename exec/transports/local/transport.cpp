#include "exec/transports/local/transport.hpp"

#include <algorithm>
#include <limits>
#include <thread>

#include "exec/base/waiting.hpp"

namespace pipewright::exec::local {
namespace {

constexpr std::int64_t kFarFuture = std::numeric_limits<std::int64_t>::max();
// One step each of spinning, yielding and sleeping: a wake-up from sleep costs some 20 us, so
// yielding a few times that long loses little, and spinning catches a peer that is about to come.
// A pause takes up to 40 ns (AMD Zen), and ranks often share a core although another one is idle:
// more than a microsecond of them only keeps the peer from running
// (tests/bench/runtime_overhead.cpp: 200 pauses made a hop 8 us long, 20 make it 2.8 us).
constexpr int kSpins = 20;
constexpr std::int64_t kYieldNs = 80'000;
// A sleep may end this late; the rest of the way to a deadline is yielded.
constexpr std::int64_t kSleepLatenessNs = 80'000;
// The longest sleep between two looks at whether the run was stopped.
constexpr std::int64_t kLongestSleepNs = 20'000'000;

}  // namespace

MessageCosts paced_messages(const Program& program, const CostTable& costs) {
  MessageCosts messages = real_messages(program, costs);
  for (std::size_t i = 0; i < program.routes.size(); ++i) {
    messages.transfer_ns[i] = costs.transfer_time(program.routes[i], program.ranks()).value;
  }
  for (const Collective& collective : program.collectives) {
    messages.collective_ns.push_back(costs.collective_time(collective, program.ranks()).value);
  }
  return messages;
}

MessageCosts real_messages(const Program& program, const CostTable& costs) {
  return {std::vector<std::int64_t>(program.routes.size(), 0), costs.message_bytes(program)};
}

LocalTransport::LocalTransport(const Program& program, MessageCosts costs, ClockKind clock)
    : program_(program),
      clock_(clock),
      exchange_(program, std::move(costs)),
      parts_(program, LocalTransport::local_ranks()),
      ranks_(static_cast<std::size_t>(program.ranks())),
      next_event_ns_(kFarFuture) {}

std::vector<RankId> LocalTransport::local_ranks() const {
  std::vector<RankId> ranks;
  for (int r = 0; r < program_.ranks(); ++r) ranks.emplace_back(r);
  return ranks;
}

void LocalTransport::throw_if_stopped() const {
  if (stopped_.load()) throw Stopped{};
}

// --- Time ---

std::int64_t LocalTransport::now() const {
  return is_virtual() ? virtual_now_.load() : steady_ns() - begin_ns_.load();
}

void LocalTransport::sleep_until(RankId rank, std::int64_t deadline) {
  if (is_virtual()) {
    Lock lock(mutex_);
    Rank& self = rank_at(rank);
    if (deadline <= virtual_now_.load()) return throw_if_stopped();
    self.sleeps_until = deadline;
    begin_waiting(self);
    self.wake.wait(lock, [&] { return !self.waits || stopped_.load(); });
    return throw_if_stopped();
  }
  while (true) {
    throw_if_stopped();
    const std::int64_t remaining = deadline - now();
    if (remaining <= 0) return;
    if (remaining > kSleepLatenessNs) {
      sleep_until_steady(steady_ns() + std::min(remaining - kSleepLatenessNs, kLongestSleepNs));
    } else if (remaining > 5'000) {
      std::this_thread::yield();
    } else {
      pause_core();
    }
  }
}

// --- Steps ---

void LocalTransport::meet(RankId, const std::function<void()>& between) {
  Lock lock(mutex_);
  throw_if_stopped();
  const std::uint64_t meeting = meeting_;
  if (++arrived_ < program_.ranks()) {
    if (live_ > 0 && --live_ > 0 && waiting_ == live_) advance();
    // Also when stopped: `between` looks at what the ranks take with them when they leave.
    met_.wait(lock, [&] { return meeting_ != meeting || (stopped_.load() && !looks_at_all_); });
    return throw_if_stopped();
  }
  if (between) look_at_all(lock, between);
  arrived_ = 0;
  ++meeting_;
  live_ = program_.ranks();
  exchange_.reset();
  next_event_ns_.store(kFarFuture);
  virtual_now_.store(0);
  begin_ns_.store(steady_ns());
  met_.notify_all();
  throw_if_stopped();
}

/// Everyone else stands still meanwhile, so nothing is contended.
void LocalTransport::look_at_all(Lock& lock, const std::function<void()>& between) {
  const auto over = [&] {
    lock.lock();
    looks_at_all_ = false;
    met_.notify_all();
  };
  looks_at_all_ = true;
  lock.unlock();
  try {
    between();
  } catch (...) {
    over();
    throw;
  }
  over();
}

// --- Transfers ---

void LocalTransport::issue(RankId, InstructionId end, PayloadPtr data) {
  const Lock lock(mutex_);
  throw_if_stopped();
  const std::int64_t at = now();
  if (!is_virtual()) exchange_.run_events(at);
  exchange_.issue(end, std::move(data), at);
  after_change();
}

void LocalTransport::provide(RankId, InstructionId send, PayloadPtr data) {
  const Lock lock(mutex_);
  throw_if_stopped();
  const std::int64_t at = now();
  if (!is_virtual()) exchange_.run_events(at);
  exchange_.provide(send, std::move(data), at);
  after_change();
}

void LocalTransport::contribute(RankId, InstructionId member, PartPtr part) {
  const Lock lock(mutex_);
  throw_if_stopped();
  parts_.put(member, std::move(part));
}

std::vector<PartPtr> LocalTransport::gathered(RankId, InstructionId member) {
  const Lock lock(mutex_);
  throw_if_stopped();
  return parts_.read(member);
}

PayloadPtr LocalTransport::take(RankId, InstructionId recv) {
  const Lock lock(mutex_);
  return exchange_.take(recv);
}

/// What has to be done after every call that may have changed the Exchange.
void LocalTransport::after_change() {
  if (!is_virtual()) {
    // Under the virtual clock an instant is over only when all ranks wait: see advance().
    while (exchange_.settle(now())) {
    }
    const std::int64_t next = exchange_.next_event().value_or(kFarFuture);
    const bool earlier = next < next_event_ns_.exchange(next);
    // A rank must not sleep past that moment.
    if (earlier && waiting_ > 0) {
      for (Rank& rank : ranks_) rank.wake.notify_one();
    }
  }
  wake_ended();
}

void LocalTransport::wake_ended() {
  for (const InstructionId id : exchange_.take_just_ended()) {
    ended_count_.fetch_add(1, std::memory_order_relaxed);
    Rank& rank = rank_at(program_.rank_of(id));
    if (rank.waits && rank.wanted == id) wake(rank);
  }
}

void LocalTransport::wake(Rank& rank) {
  rank.waits = false;
  rank.wanted = kNoInstruction;
  rank.sleeps_until.reset();
  --waiting_;
  rank.wake.notify_one();
}

// --- Waiting ---

void LocalTransport::wait(RankId rank, InstructionId id) {
  if (exchange_.has_ended(id)) return;
  if (!is_virtual() && spin_for(id)) return;
  Lock lock(mutex_);
  sleep_for(lock, rank_at(rank), id);
}

/// True if it ended while we spun. Returns early when a message is due, for somebody has to see it.
bool LocalTransport::spin_for(InstructionId id) const {
  const auto due = [&] { return next_event_ns_.load(std::memory_order_relaxed) <= now(); };
  for (int i = 0; i < kSpins; ++i) {
    if (exchange_.has_ended(id)) return true;
    pause_core();
  }
  const std::int64_t until = steady_ns() + kYieldNs;
  while (steady_ns() < until && !stopped_.load(std::memory_order_relaxed) && !due()) {
    if (exchange_.has_ended(id)) return true;
    std::this_thread::yield();
  }
  return exchange_.has_ended(id);
}

void LocalTransport::sleep_for(Lock& lock, Rank& self, InstructionId id) {
  throw_if_stopped();
  if (!is_virtual()) {
    exchange_.run_events(now());
    after_change();
  }
  if (exchange_.has_ended(id)) return;
  self.wanted = id;
  begin_waiting(self);
  if (is_virtual()) {
    self.wake.wait(lock, [&] { return !self.waits || stopped_.load(); });
  } else {
    sleep_on_wall(lock, self, id);
  }
  throw_if_stopped();
}

/// One of the sleepers, the first that comes, keeps the time: it wakes at the next event and lets
/// it happen. When it has what it wants, another takes over.
void LocalTransport::sleep_on_wall(Lock& lock, Rank& self, InstructionId id) {
  while (self.waits && !stopped_.load()) {
    const std::int64_t next = next_event_ns_.load();
    if (next == kFarFuture || keeps_time_) {
      self.wake.wait(lock);
      continue;
    }
    keeps_time_ = true;
    const std::int64_t remaining = next - now();
    if (remaining > kSleepLatenessNs) {
      self.wake.wait_for(lock, std::chrono::nanoseconds(remaining - kSleepLatenessNs));
    } else if (remaining > 0) {
      lock.unlock();
      spin_for(id);
      lock.lock();
    }
    keeps_time_ = false;
    exchange_.run_events(now());
    after_change();
    if (waiting_ == live_) advance();
  }
  if (waiting_ == 0) return;
  for (Rank& rank : ranks_) {
    if (rank.waits) return rank.wake.notify_one();
  }
}

void LocalTransport::begin_waiting(Rank& rank) {
  rank.waits = true;
  ++waiting_;
  if (waiting_ == live_) advance();
}

/// All ranks of the step wait. Virtual clock: goes on to the next moment at which one of them can
/// go on. Either clock: if there is no such moment, the run is stuck.
void LocalTransport::advance() {
  if (!is_virtual()) {
    if (!exchange_.next_event()) declare_stuck();
    return;
  }
  while (waiting_ == live_ && !stopped_.load()) {
    const bool settled = exchange_.settle(virtual_now_.load());
    wake_ended();
    if (settled) continue;
    std::int64_t next = exchange_.next_event().value_or(kFarFuture);
    for (const Rank& rank : ranks_) next = std::min(next, rank.sleeps_until.value_or(kFarFuture));
    if (next == kFarFuture) return declare_stuck();
    virtual_now_.store(next);
    exchange_.run_events(next);
    wake_ended();
    for (Rank& rank : ranks_) {
      if (rank.sleeps_until && *rank.sleeps_until <= next) wake(rank);
    }
  }
}

// --- Stopping and watching ---

void LocalTransport::declare_stuck() {
  stuck_ = true;
  watch_.notify_all();
}

void LocalTransport::stop() noexcept {
  const Lock lock(mutex_);
  stopped_.store(true);
  for (Rank& rank : ranks_) rank.wake.notify_all();
  met_.notify_all();
}

bool LocalTransport::stands_still_within(std::int64_t timeout_ns) {
  Lock lock(mutex_);
  watch_.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                  [&] { return (stuck_ && !stopped_.load()) || watch_ended_; });
  return stuck_ && !stopped_.load();
}

void LocalTransport::end_watch() noexcept {
  const Lock lock(mutex_);
  watch_ended_ = true;
  watch_.notify_all();
}

bool LocalTransport::awaits_time(RankId rank) const {
  const Lock lock(mutex_);
  return ranks_[static_cast<std::size_t>(rank.value)].sleeps_until.has_value();
}

void LocalTransport::report(Timeline& timeline, Progress& progress) const {
  const Lock lock(mutex_);
  exchange_.report(timeline, progress);
}

}  // namespace pipewright::exec::local
