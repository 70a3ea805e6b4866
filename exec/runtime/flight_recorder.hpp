// What a rank did last: a ring of entries, written by the rank's thread while it runs and read by
// others while it is stuck. Neither side takes a lock or waits. An entry is written in about 5 ns,
// reading the clock not counted. (PyTorch's flight recorder is a ring for the same purpose.)
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/program/program.hpp"

namespace pipewright::exec {

enum class FlightState : std::uint8_t {
  Started,  // a computation
  Issued,   // a transfer end
  Waiting,  // the instruction stands still until another one has ended
  Ended,    // a computation, or a transfer end that the rank waited for
};
std::string_view to_string(FlightState state);  // "started", …

struct FlightEntry {
  InstructionId instruction = kNoInstruction;
  FlightState state = FlightState::Started;
  InstructionId waits_for = kNoInstruction;  // of Waiting
  std::int64_t time_ns = 0;                  // from the step's start, on the transport's clock
};

inline constexpr int kDefaultFlightEntries = 1024;

class FlightRecorder {
 public:
  /// Keeps the last `capacity` entries; 0: keeps none, and costs nothing.
  explicit FlightRecorder(std::size_t capacity);

  // The rank's thread.

  bool is_on() const { return !slots_.empty(); }
  /// What was noted before belongs to another step and is not shown any more.
  void begin_step() { first_.store(count_.load(std::memory_order_relaxed)); }
  void note(const FlightEntry& entry);
  /// The rank is about to do what may take long: a computation, a wait. `now_ns` on the machine's
  /// steady clock.
  void settle(std::int64_t now_ns) { settled_ns_.store(now_ns, std::memory_order_relaxed); }

  // Any thread.

  /// Oldest first. While the rank writes on, what is just being overwritten is left out.
  std::vector<FlightEntry> recent() const;
  /// When settle() was last called; 0 if never.
  std::int64_t settled_ns() const { return settled_ns_.load(std::memory_order_relaxed); }

 private:
  // Two words an entry. Stored with release and loaded with acquire: whoever sees a word of an
  // entry also sees how many entries were complete before it.
  struct Slot {
    std::atomic<std::uint64_t> who{0};   // instruction, waits_for
    std::atomic<std::uint64_t> what{0};  // time, state
  };

  std::vector<Slot> slots_;  // one more than the capacity: the one that may be half written
  std::size_t next_ = 0;     // the slot to write; the rank's thread alone
  std::atomic<std::uint64_t> count_{0}, first_{0};
  std::atomic<std::int64_t> settled_ns_{0};
};

}  // namespace pipewright::exec
