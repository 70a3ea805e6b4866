// Why a run did not finish, rank by rank: who is dead, who is slow, who waits and for what, and
// what each did last. Made once, from one look at all ranks and the analysis that check uses
// (core/program/wait_for.hpp). Pure; times in nanoseconds.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/program/program.hpp"
#include "core/program/wait_for.hpp"
#include "exec/runtime/flight_recorder.hpp"
#include "exec/runtime/rank.hpp"

namespace pipewright::exec {

enum class RankState : std::uint8_t {
  Preparing,  // has not begun the step
  Working,    // was computing, or handing data over, when another rank ended the run
  Waiting,    // for what may still come
  Done,       // has ended its step
  Slow,       // was still working when the watchdog's patience ended
  Stuck,      // waits for what can never come
  Dead,       // its thread has ended with an error
};
std::string_view to_string(RankState state);  // "preparing", …

/// A comm lane, or the compute lane, on which something was left over.
struct LaneReport {
  int lane = 0;                                  // its number, 0: compute
  InstructionId last_finished = kNoInstruction;  // right before it in the lane
  InstructionId first_unfinished = kNoInstruction;
};

struct RankReport {
  RankId rank;
  RankState state = RankState::Preparing;
  /// Of the compute lane; if that has ended, first_unfinished is a transfer end. kNoInstruction:
  /// none.
  InstructionId last_finished = kNoInstruction, first_unfinished = kNoInstruction;
  /// What the rank needs, as the rank that owes it would call it: of a wait for a transfer the
  /// other end. kNoInstruction if it does not wait.
  InstructionId waits_for = kNoInstruction;
  /// How long the rank has been doing what it does: in this wait, in this computation. -1: unknown.
  std::int64_t idle_ns = -1;
  std::vector<LaneReport> lanes;
  std::vector<FlightEntry> recent;  // oldest first; of this step
};

struct FlightReport {
  WaitReport waits;
  std::vector<RankReport> ranks;
};

/// One look at a rank.
struct RankLook {
  RankId rank;
  Standing standing;
  std::int64_t looked_ns = 0;  // on the steady clock
  bool dead = false;
  bool awaits_time = false;  // Transport::awaits_time()
  std::vector<FlightEntry> recent;
};

/// `out_of_patience`: nothing had ended for as long as the watchdog allows.
FlightReport flight_report(const Program& program, const Progress& progress, WaitReport waits,
                           std::vector<RankLook> looks, bool out_of_patience);

}  // namespace pipewright::exec
