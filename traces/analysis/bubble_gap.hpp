// One gap of a compute lane, split by cause (docs/metrics.md). Pure function; ids are of the
// caller's choice.
#pragma once

#include <cstdint>
#include <vector>

#include "traces/analysis/bubbles.hpp"

namespace pipewright::traces {

/// A transfer that the lane waits for from `from` to `to`.
struct PendingTransfer {
  std::int64_t from = 0, to = 0;
  /// Until when the wait for it is a wait for other ranks. RECV: when what it brings had been
  /// computed. SEND and collective: when its data began to move; the rank's own part was there
  /// before, so it waits for its peer or for the other members.
  std::int64_t made = 0;
  /// By how much the computation that feeds it is longer than the one that it feeds; never
  /// negative.
  std::int64_t excess = 0;
  std::uint32_t producer = 0, transfer = 0;
};

struct GapPart {
  std::int64_t from = 0, to = 0;
  BubbleCause cause = BubbleCause::Overhead;
  std::uint32_t waits_for = 0;
};

/// Splits [from, to). A moment is Data until all pending transfers are `made` (Imbalance in the
/// last `excess` ns of that), Transfer from then on until they have ended, and Overhead while no
/// transfer is pending. `together`: all are waited for from `from` on; else one after the other, in
/// the given order.
void split_gap(std::int64_t from, std::int64_t to, const std::vector<PendingTransfer>& pending,
               bool together, std::vector<GapPart>& parts);

}  // namespace pipewright::traces
