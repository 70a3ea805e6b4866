// Where the time of a step is lost: every moment in which a rank does not compute gets one cause.
// The formulas are in docs/metrics.md. Times in ns. Pure functions; any number of threads may call
// them.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/timeline/timeline.hpp"

namespace pipewright::traces {

enum class BubbleCause : std::uint8_t {
  Fill,       // before the rank's first computation
  Drain,      // after its last one
  Data,       // another rank had not yet computed what this one needs, or was not there to take it
  Imbalance,  // part of such a wait: the action that feeds takes longer than the one it feeds
  Transfer,   // after that: its transfer waited, was under way, or held the compute lane
  Overhead,   // everything was there and the action had not begun; 0 in a simulation
  Stuck,      // the rest of a step that did not finish
};
inline constexpr int kBubbleCauses = 7;

/// "fill", "drain", "waiting for data", "imbalance", "waiting for a transfer", "overhead", "stuck".
std::string_view to_string(BubbleCause cause);

struct Bubble {
  RankId rank;
  std::int64_t start_ns = 0, end_ns = 0;
  BubbleCause cause = BubbleCause::Fill;
  /// The computation that had to wait; kNoInstruction for Drain and Stuck.
  InstructionId waiting = kNoInstruction;
  /// Data, Imbalance: the computation of another rank (kNoInstruction for the wait of a SEND or a
  /// collective). Transfer: the transfer end on this rank.
  InstructionId waits_for = kNoInstruction;
};

struct BubbleTotals {
  std::array<std::int64_t, kBubbleCauses> ns{};
  std::int64_t of(BubbleCause cause) const { return ns[static_cast<std::size_t>(cause)]; }
  std::int64_t sum() const;
};

struct BubbleReport {
  std::vector<Bubble> bubbles;  // by rank, then start; none is empty, none overlap
  std::vector<BubbleTotals> ranks;
  BubbleTotals total;  // its sum is ranks * makespan - the busy time of all ranks, exactly
};

BubbleReport explain_bubbles(const Program& program, const Timeline& timeline);

}  // namespace pipewright::traces
