// The moments of an order at which its ranks may hold the most, found once for any sizes of what is
// held: peaks_of() of a Program without asking each action again. Immutable after construction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/order/order.hpp"

namespace pipewright::planner {

class OrderPeaks {
 public:
  /// What the sizes will have: `InActions`, also what an action holds while it runs
  /// (StageMemory::in_f and its like).
  enum class Sizes : std::uint8_t { Changes, InActions };
  /// `order` trains: what an F holds its I and W, or B, let go of.
  explicit OrderPeaks(const Order& order, Sizes sizes = Sizes::InActions);

  int ranks() const { return static_cast<int>(ranks_.size()); }
  /// That the rank computes, for any micro-batch.
  const std::vector<int>& stages_of(int rank) const { return at(rank).stages; }
  /// The bytes that the rank holds at most, with constants. `memory` by stage; what is held behind
  /// an F or an I is not negative.
  Bytes peak(int rank, std::span<const StageMemory> memory) const;

 private:
  /// Of each of the rank's stages: micro-batches behind F and behind I, and where the order names
  /// versions the older ones of its weights. {f, i, f, i, …} or {f, i, v, f, i, v, …}.
  using Held = std::vector<int>;
  /// Moments of one sort: behind any action, or in front of those of a kind and stage, which hold
  /// more while they run. Of those that hold no more than another only that one is there.
  struct Moments {
    ActionKind kind = ActionKind::Idle;  // Idle: behind any
    int stage = 0;                       // of the rank's
    std::vector<Held> most;

    void add(const Held& held);
  };
  struct Rank {
    std::vector<int> stages;
    bool versioned = false;
    std::vector<Moments> moments;
  };
  class Walk;

  const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  std::vector<Rank> ranks_;
};

}  // namespace pipewright::planner
