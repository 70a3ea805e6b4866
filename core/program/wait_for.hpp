// Why a Program does not go on: from how far each lane has come to the verdict,
// the shortest cycle and the heads (docs/semantics.md §7). check calls it on a
// simulated state, the watchdog on a running one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/program/program.hpp"

namespace pipewright {

enum class Verdict : std::uint8_t { Ok, Deadlock, Mismatch, Invalid };
std::string_view to_string(Verdict verdict);

/// How far a reader has come. Bytes, not bits: written by several threads in
/// exec (one writer an element).
struct Progress {
  std::vector<std::uint8_t> ended;  // by instruction
  std::vector<std::uint8_t> left;   // by instruction: an eager SEND that left (it has ended too)
};

struct WaitStep {
  RankId rank;
  InstructionId instruction = kNoInstruction;  // the head
  InstructionId waits_for = kNoInstruction;
  InstructionId behind = kNoInstruction;  // the head that waits_for stands behind (may be itself)
  /// It waits to be issued, not to start (§2.2): for the other rank's host, or for a place among
  /// the transfers in flight.
  bool to_be_issued = false;
  /// Of WaitReport::cause: the SEND that would bring what waits_for makes; kNoInstruction: both are
  /// on one rank.
  InstructionId through = kNoInstruction;
};

struct StuckHead {
  RankId rank;
  int lane = 0;
  InstructionId instruction = kNoInstruction;
  /// It can never go on. False where it runs (computes, or its data moves), and where all that it
  /// waits for still may come.
  bool for_good = true;
};

struct WaitReport {
  Verdict verdict = Verdict::Ok;
  std::vector<WaitStep> cycle;
  /// A cycle among the computations alone (§7.2), where that is why; else empty.
  std::vector<WaitStep> cause;
  /// The one to show: in the user's own actions where that is possible.
  const std::vector<WaitStep>& shown() const { return cause.empty() ? cycle : cause; }
  std::vector<StuckHead> stuck;
  /// For Mismatch: the RECV and the SEND that met, or two calls, of which the second one is that of
  /// the lower rank; the first by rank of the former.
  InstructionId mismatched_recv = kNoInstruction, mismatched_send = kNoInstruction;
  /// For Invalid: what waits, and for what in words.
  std::vector<std::string> reasons;
};

/// `message_bytes` by route, needed only where the policy counts credit in
/// bytes (else empty). Of a state in which something still runs (a rank computes, a message is
/// under way) the verdict is Ok unless there is a cycle or a mismatch: those last whatever runs.
WaitReport explain_stuck(const Program& program, const Progress& progress,
                         const std::vector<std::int64_t>& message_bytes = {});

/// The cause, or the cycle, as a sentence a person can act on, one line a step.
std::string describe(const Program& program, const WaitReport& report);

}  // namespace pipewright
