// The cure by moving transfer ends: the order is read without durations, and where the reading
// stands still the end that a ready partner waits for is moved to before the instruction that holds
// it back. So each move breaks one cycle of waits, and nothing moves that no cycle asks for.
// Computations keep their places. Pure; O(instructions * lanes) at worst.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/comm_policy.hpp"
#include "core/costs.hpp"
#include "core/lower.hpp"
#include "core/order.hpp"

namespace pipewright::planner {

/// One transfer end that was moved earlier in its rank's list.
struct Hoist {
  RankId rank;
  Cell what;
  Cell before;  // what follows it now
};

struct HoistedOrder {
  Order order;
  std::vector<Hoist> moves;  // by rank, then place
};

/// `listed` holds its transfer ends and is read as written. Transfers meet by tensor, and the
/// receives of a directed edge are brought into the order of its sends, so that a mismatch is cured
/// too. nullopt if a cycle holds no transfer end that may be moved, or one would have to move a
/// fifth time. The answer still has to be proved: the engine knows more than this reading.
std::optional<HoistedOrder> hoisted(const Order& listed, const CommPolicy& policy,
                                    const CostTable& costs, const LowerOptions& options);

}  // namespace pipewright::planner
