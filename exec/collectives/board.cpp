#include "exec/collectives/board.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "core/base/error.hpp"
#include "exec/base/backoff.hpp"
#include "exec/base/buffer.hpp"

namespace pipewright::exec::collectives {
namespace {

// A look may cost a call of the kernel for each member.
constexpr int kTurnsPerLook = 256;
constexpr std::size_t kPage = 4096;

// Whoever has broken off has left amid a call, and what it showed may be gone.
enum Presence : std::uint32_t { Here = 0, HasLeft, HasBrokenOff, GivingUp, HasGivenUp };

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

/// Zeros are a seat whose member has shown nothing yet.
struct alignas(kAlignment) Board::Seat {
  std::atomic<std::uint64_t> round;  // shown
  std::atomic<std::uint32_t> presence;
  std::atomic<bool> reads;     // what others show
  std::array<char, 500> why;   // of who has given up
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
  own.round.store(round_, std::memory_order_release);
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
  local::Backoff backoff;
  for (int turn = 1; other.round.load(std::memory_order_acquire) < round; ++turn) {
    if (turn % kTurnsPerLook == 0) look_around(member, round);
    backoff.pause();
  }
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
