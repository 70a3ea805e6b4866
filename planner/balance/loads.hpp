// What each micro-batch of a step takes, told apart from what is slow about the ranks that compute
// it. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "core/costs/action_times.hpp"
#include "core/costs/costs.hpp"
#include "core/program/program.hpp"
#include "core/timeline/timeline.hpp"

namespace pipewright::planner {

/// The micro-batch that each place gets, both by their numbers in the Program: place
/// replica * micro-batches + turn is the replica's micro-batch `turn`.
using Dealing = std::vector<int>;

class Loads {
 public:
  /// `program` is that of all replicas, `costs` what it takes as its micro-batches are now. Throws
  /// InputError where an action computes two micro-batches at once, or consists of parts.
  Loads(const Program& program, const CostTable& costs, const ReplicaShape& shape);

  const ReplicaShape& shape() const { return shape_; }
  Dealing as_it_is() const;

  /// How many times as long as in most replicas the rank takes for the same. Sequences that are
  /// long are so on all ranks, a slow rank is not: of a micro-batch the median of what it takes on
  /// each rank, against what others do, is the sequence's, and the rest the rank's.
  double slowness(int replica, int rank) const { return slowness_[index(replica, rank)]; }
  /// Of all that a rank of a replica computes for a micro-batch, in ns.
  double time(int micro_batch, int replica, int rank) const {
    return work_[index(micro_batch, rank)] * slowness(replica, rank);
  }

  /// By instruction of the Program: what it takes when so dealt out.
  std::vector<std::int64_t> compute_ns(const Dealing& dealing) const;
  /// The same as the times of single actions, of all but updates.
  std::vector<ActionTime> rows(const Dealing& dealing) const;
  /// By replica: when the last of its computations ends.
  std::vector<std::int64_t> ends(const Timeline& timeline) const;

 private:
  struct Slot {  // of a micro-batch: a computation
    ActionKind kind = ActionKind::F;
    int stage = 0;
    auto operator<=>(const Slot&) const = default;
  };
  struct Computation {
    InstructionId instruction = 0;
    int place = 0, rank = 0;  // the rank in its replica
    std::size_t slot = 0;
  };

  std::size_t index(int of, int rank) const {
    return static_cast<std::size_t>(of) * static_cast<std::size_t>(shape_.ranks) +
           static_cast<std::size_t>(rank);
  }
  void read(const Program& program);
  void tell_slow_ranks();
  std::int64_t time_of(const Computation& computation, int micro_batch) const;

  ReplicaShape shape_;
  std::vector<std::int64_t> as_given_;  // by instruction
  std::vector<Computation> computations_;
  std::vector<Slot> slots_;
  std::vector<std::int64_t> times_;  // by micro-batch and slot, where it is now
  std::vector<int> ranks_;           // on which that is
  std::vector<double> slowness_;     // by replica and rank
  std::vector<double> work_;         // by micro-batch and rank, where nothing is slow
};

}  // namespace pipewright::planner
