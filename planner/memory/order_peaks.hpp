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
  /// What the sizes given to peak() may have. `InActions`: also what an action holds while it runs
  /// (StageMemory::in_f and its like).
  enum class Sizes : std::uint8_t { Changes, InActions };
  /// `order` trains: I and W, or B, let go of what F holds.
  explicit OrderPeaks(const Order& order, Sizes sizes = Sizes::InActions);

  int ranks() const { return static_cast<int>(ranks_.size()); }
  /// The stages that the rank computes, for any micro-batch.
  const std::vector<int>& stages_of(int rank) const { return at(rank).stages; }
  /// The bytes that the rank holds at most, with constants; copies of gradients as if made after
  /// its last computation. `memory` by stage; what is held after an F or an I is not negative.
  Bytes peak(int rank, std::span<const StageMemory> memory) const;

 private:
  /// Of each of the rank's stages: how many micro-batches are held after F and after I, and where
  /// the order names versions, how many older ones of its weights. {f, i, f, i, …} or {f, i, v, f,
  /// i, v, …}.
  using Held = std::vector<int>;
  /// Moments of one sort: after any action, or before those of a kind and stage, which hold more
  /// while they run. A moment that holds no more than another is left out.
  struct Moments {
    ActionKind kind = ActionKind::Idle;  // Idle: after any
    int stage = 0;                       // of the rank's
    std::vector<Held> most;

    void add(const Held& held);
  };
  struct Rank {
    std::vector<int> stages;
    std::vector<int> reductions;  // by place in `stages`: REDUCE_GRADs, 1 where the order has none
    bool versioned = false;
    std::vector<Moments> moments;
  };
  class Walk;

  const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  std::vector<Rank> ranks_;
};

}  // namespace pipewright::planner
