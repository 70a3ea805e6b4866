// lower(): an order and a policy become a Program. The only place that decides
// where communication goes (docs/semantics.md §1).
#pragma once

#include <vector>

#include "core/order/order.hpp"
#include "core/program/program.hpp"

namespace pipewright {

struct LowerOptions {
  bool fragment = false;   // the order is a part of a log: what it lacks is no fault
  bool clips = false;      // with `optimizer`: REDUCE_NORM before every OPT
  bool optimizer = false;  // append OPT to every rank that computes weight gradients and has none,
                           // REDUCE_GRAD of its replicated stages before it
  bool sharded = false;    // with `optimizer`: UNSHARD of these stages after the OPT, so that each
                           // replica updates its part of the parameters (ZeRO stage 1)
  /// With `sharded`: a later stage of ZeRO, and groups; where it says nothing, the order's.
  Sharding sharding = {};
  /// With `optimizer`: stages that have weights in common (core/model/tie.hpp). REDUCE_TIED before
  /// the OPT of each rank that computes one of them.
  std::vector<StageId> tied;
};

/// Adds the transfer ends (unless the order has them), places the receives,
/// matches the transfers. Never throws for a wrong order: what is stuck in the
/// order is stuck in the Program. O(instructions). Throws InputError beyond
/// 65,535 stages or 2^32 - 2 instructions.
Program lower(const Order& order, const CommPolicy& policy, const LowerOptions& options = {});

/// The order with its transfer ends, as lower() lists them (for `schedules
/// export --comms`).
Order with_transfers(const Order& order);

/// A rank's list, as an order has it.
std::vector<Cell> cells_of(const Program& program, RankId rank);

}  // namespace pipewright
