// Micro-batches of unequal length, dealt out to replicas and put in an order so that the slowest
// replica ends early (docs/tuning.md, "Micro-batches of unequal length"). Deterministic.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/balance/loads.hpp"

namespace pipewright::planner {

struct Dealt {
  Dealing dealing;
  /// By replica: when its last computation ends, simulated.
  std::vector<std::int64_t> before_ns, after_ns;
  /// The slowest replica ends no earlier, however micro-batches are dealt out: what a rank has to
  /// do in all replicas, shared according to their speed, or the shortest micro-batches on the
  /// slowest.
  std::int64_t least_ns = 0;
  int simulated = 0;

  std::int64_t slowest_before() const;
  std::int64_t slowest_after() const;
};

/// Each replica gets as many micro-batches as it has. Longest first to the replica that would end
/// first, then exchanges of two as long as they make the busiest less busy, then the order within
/// each replica by simulation. Never worse than as it is. `program` and `costs` are those of
/// `loads`.
Dealt deal_out(const Program& program, const CostTable& costs, const Loads& loads);

}  // namespace pipewright::planner
