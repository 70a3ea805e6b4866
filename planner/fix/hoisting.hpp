// The fix by moving transfer ends. The order is read without durations, and where the reading
// stands still, the end that a ready partner waits for is moved to before the instruction that
// holds it back. Only ends in a cycle of waits move; computations keep their places. Pure;
// O(instructions * lanes) at worst.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/order/comm_policy.hpp"
#include "core/order/order.hpp"
#include "core/program/lower.hpp"

namespace pipewright::planner {

/// One transfer end that was moved earlier in its rank's list.
struct Hoist {
  RankId rank;
  Cell what;
  Cell before;  // what follows it now
};

/// How a cycle is broken: by one move, the fewest; or by moves on every second rank of it, so that
/// a ring of ranks exchanges in two steps and not one after the other.
enum class HoistMoves : std::uint8_t { Fewest, EverySecond };

struct HoistedOrder {
  Order order;
  std::vector<Hoist> moves;  // by rank, then place
};

/// `listed` holds its transfer ends and is read as written. Transfers meet by tensor, and the
/// receives of a directed edge are brought into the order of its sends, so that a mismatch is fixed
/// too. nullopt if a cycle holds no transfer end that may be moved, or one would have to move a
/// fifth time. The answer still has to be proved: the engine knows more than this reading.
std::optional<HoistedOrder> hoisted(const Order& listed, const CommPolicy& policy,
                                    const CostTable& costs, const LowerOptions& options,
                                    HoistMoves wanted);

}  // namespace pipewright::planner
