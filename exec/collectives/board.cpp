#include "exec/collectives/board.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <ctime>
#include <new>
#include <thread>
#include <utility>

#include "core/base/error.hpp"
#include "exec/base/backoff.hpp"
#include "exec/base/buffer.hpp"
#include "exec/base/waiting.hpp"

namespace pipewright::exec::collectives {
namespace {

// A wait spins, then yields while that costs next to nothing, then sleeps until it is woken or the
// time for a look around has come.
constexpr int kSpins = 100;
constexpr std::int64_t kYieldNs = 50'000, kSleepNs = 1'000'000;
/// A yield that took so long has let others compute: on such a machine a sleeper, who is woken at
/// once, waits shorter. So many waits then go without.
constexpr std::int64_t kLongYieldNs = 200'000;
constexpr int kWaitsWithoutYield = 1'000;
constexpr std::size_t kPage = 4096;

// Whoever has broken off has left amid a call, and what it showed may be gone.
enum Presence : std::uint32_t { Here = 0, HasLeft, HasBrokenOff, GivingUp, HasGivenUp };

/// Of processes that share the word, too.
void sleep_while(const std::atomic<std::uint32_t>& word, std::uint32_t value, std::int64_t most) {
  const timespec time{0, most};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}
void wake_all(const std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

/// Zeros are a seat whose member has shown nothing yet.
struct alignas(kAlignment) Board::Seat {
  std::atomic<std::uint64_t> round;  // shown
  std::atomic<std::uint32_t> bell;   // its low bits, for which others sleep
  std::atomic<std::uint32_t> sleepers;
  std::atomic<std::uint32_t> presence;
  std::atomic<bool> reads;     // what others show
  std::array<char, 492> why;   // of who has given up
  std::array<Shown, 2> shown;  // by round, in turns
};

std::size_t Board::bytes(int members, std::size_t window_bytes) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  const auto n = static_cast<std::size_t>(members);
  return whole_pages(n * sizeof(Seat)) + 2 * n * whole_pages(window_bytes);
}

Board::Board(Place place) : place_(std::move(place)) {
  PIPEWRIGHT_ASSERT(place_.member >= 0 && place_.member < place_.members, "no member of the group");
}

Board::~Board() {
  std::uint32_t before = Here;
  seat(place_.member).presence.compare_exchange_strong(before, HasLeft);
}

Board::Seat& Board::seat(int member) const {
  return *std::launder(reinterpret_cast<Seat*>(place_.memory) + member);
}

std::byte* Board::window(int member, std::uint64_t round) const {
  const auto n = static_cast<std::size_t>(place_.members);
  const std::size_t index = 2 * static_cast<std::size_t>(member) + round % 2;
  return place_.memory + whole_pages(n * sizeof(Seat)) + index * whole_pages(place_.window_bytes);
}

std::byte* Board::begin_round() {
  Seat& own = seat(place_.member);
  own.reads.store(true);
  while (own.presence.load() >= HasBrokenOff) look_around(place_.member, round_);
  for (int m = 0; m < place_.members; ++m) wait_for(m, round_);
  ++round_;
  return copies() ? window(place_.member, round_) : nullptr;
}

void Board::show(const Shown& shown) {
  Seat& own = seat(place_.member);
  own.shown[round_ % 2] = shown;
  own.round.store(round_);
  own.bell.store(static_cast<std::uint32_t>(round_));
  if (own.sleepers.load() > 0) wake_all(own.bell);
}

/// Whoever has given up or broken off may be on its way out with what it has shown: leave_call()
/// waits only for those that had begun to read before.
Shown Board::shown_by(int member) {
  wait_for(member, round_);
  const Seat& other = seat(member);
  while (other.presence.load() >= HasBrokenOff) look_around(member, round_);
  Shown shown = other.shown[round_ % 2];
  if (shown.call != seat(place_.member).shown[round_ % 2].call)
    fail("members " + std::to_string(std::min(member, place_.member)) + " and " +
         std::to_string(std::max(member, place_.member)) +
         " of a group call different collectives, or of different sizes");
  if (copies()) shown.at = window(member, round_);
  return shown;
}

void Board::end_reading() { seat(place_.member).reads.store(false); }

void Board::wait_for(int member, std::uint64_t round) {
  const Seat& other = seat(member);
  const auto is_there = [&] { return other.round.load(std::memory_order_acquire) >= round; };
  for (int spin = 0; spin < kSpins; ++spin) {
    if (is_there()) return;
    local::pause_core();
  }
  if (waits_without_yield_ > 0) {
    --waits_without_yield_;
  } else {
    const std::int64_t begin = local::steady_ns();
    for (std::int64_t now = begin, before = begin; now - begin < kYieldNs; before = now) {
      if (is_there()) return;
      std::this_thread::yield();
      now = local::steady_ns();
      if (now - before > kLongYieldNs) waits_without_yield_ = kWaitsWithoutYield;
    }
  }
  while (!is_there()) {
    look_around(member, round);
    sleep_for(seat(member), round);
  }
}

/// Whoever shows looks for sleepers after it has shown, and a sleeper at what is shown after it is
/// one: so none sleeps on.
void Board::sleep_for(Seat& other, std::uint64_t round) {
  other.sleepers.fetch_add(1);
  const std::uint32_t heard = other.bell.load();
  if (other.round.load() < round) sleep_while(other.bell, heard, kSleepNs);
  other.sleepers.fetch_sub(1);
}

/// Throws where the wait is in vain.
void Board::look_around(int awaited, std::uint64_t round) {
  for (int m = 0; m < place_.members; ++m) {
    const Seat& one = seat(m);
    while (one.presence.load() == GivingUp) local::pause_core();
    if (one.presence.load() == HasGivenUp) fail(one.why.data());
  }
  if (place_.look) return look_outside();
  std::string how;
  if (seat(awaited).presence.load() == HasLeft)
    how = "has left it";
  else if (place_.how_ended)
    how = place_.how_ended(awaited);
  // It may have come before it left.
  if (!how.empty() && seat(awaited).round.load(std::memory_order_acquire) < round)
    fail("member " + std::to_string(awaited) + " of the group " + how);
}

void Board::look_outside() {
  try {
    place_.look();
  } catch (...) {
    std::uint32_t before = Here;
    seat(place_.member).presence.compare_exchange_strong(before, HasBrokenOff);
    leave_call();
    throw;
  }
}

/// Until nobody reads what this member has shown where it lies.
void Board::leave_call() {
  end_reading();
  for (int m = 0; m < place_.members && !copies(); ++m) {
    local::Backoff backoff;
    while (seat(m).reads.load()) backoff.pause();
  }
}

void Board::fail(const std::string& why) {
  give_up(why);
  leave_call();
  throw RunError(why);
}

void Board::give_up(const std::string& why) noexcept {
  Seat& own = seat(place_.member);
  std::uint32_t before = Here;
  if (!own.presence.compare_exchange_strong(before, GivingUp)) return;
  const std::size_t size = std::min(why.size(), own.why.size() - 1);
  std::memcpy(own.why.data(), why.data(), size);
  own.presence.store(HasGivenUp);
}

}  // namespace pipewright::exec::collectives
