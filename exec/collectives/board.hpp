// Where members that share memory show one another what they have, in rounds. Threads show their
// arrays where they lie. Processes copy a piece at a time into windows of memory that all of them
// map: each has two, in turns, so that it fills one while the others still read the other.
//
// The memory is the caller's: zeros to begin with, one stretch for all members, and it has to stay
// until all of them are gone. It may be mapped at different places in different processes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "exec/base/buffer.hpp"
#include "exec/collectives/group.hpp"

namespace pipewright::exec::collectives {

/// What a member shows in a round.
struct Shown {
  const std::byte* at = nullptr;       // in its own address space, where nothing is copied
  const std::size_t* sizes = nullptr;  // the same, of an all_to_all
  std::uint64_t call = 0;              // what it is doing: all members' have to be equal
  bool fine = true;                    // see Group::all_reduce
};

/// A member's side of a board.
class Board {
 public:
  struct Place {
    std::byte* memory = nullptr;
    int member = 0, members = 1;
    std::size_t window_bytes = 0;  // 0: memory is shown where it lies
    /// Asks, now and then during a wait, whether a member has ended without a word: how, as a
    /// clause; empty if it has not.
    std::function<std::string(int member)> how_ended = {};
    Look look = {};  // see Group; asked instead, where there is one
  };
  /// Bytes of memory that a board needs.
  static std::size_t bytes(int members, std::size_t window_bytes);

  explicit Board(Place place);
  /// The member leaves: whoever waits for it from now on waits in vain, and is told so.
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  int member() const { return place_.member; }
  int members() const { return place_.members; }
  bool copies() const { return place_.window_bytes > 0; }

  /// The next round begins once all members have come to the round before it: then nobody reads any
  /// more what this member showed two rounds ago. Throws as shown_by(). Returns its window; null
  /// where nothing is copied.
  std::byte* begin_round();
  void show(const Shown& shown);
  /// Waits until that member shows something in this round; `at` is where it can be read here.
  /// Throws RunError where a member has ended or given up, or where the two do not do the same, and
  /// what Place::look throws.
  Shown shown_by(int member);
  /// The member reads nothing of the others' any more, until its next round.
  void end_reading();

  /// Gives up and throws RunError, once nobody reads what this member has shown where it lies.
  [[noreturn]] void fail(const std::string& why);
  /// See Group.
  void give_up(const std::string& why) noexcept;

 private:
  struct Seat;
  Seat& seat(int member) const;
  std::byte* window(int member, std::uint64_t round) const;
  void wait_for(int member, std::uint64_t round);
  void sleep_for(Seat& other, std::uint64_t round);
  void look_around(int member, std::uint64_t round);
  void look_outside();
  void leave_call();

  // Members' boards may lie side by side.
  alignas(2 * kAlignment) const Place place_;
  std::uint64_t round_ = 0;  // begun
  int waits_without_yield_ = 0;
};

}  // namespace pipewright::exec::collectives
