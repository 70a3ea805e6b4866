// What is wrong with the calls of an order, said before it is run (docs/semantics.md §3.3).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/order/order.hpp"

namespace pipewright {

struct CallFault {
  RankId rank;
  std::size_t cell = 0;  // in Order::ranks
  std::string sentence;
};
/// The first call that no order can hold: one of a group by a rank that is not in it, a transfer to
/// or from a rank that does not exist, or that is its own. O(actions).
std::optional<CallFault> call_fault(const Order& order);

/// What is wrong with the parts and the mesh of an order, beside its calls; "" if nothing.
std::string part_fault(const Order& order);

/// What is wrong with the ranks of a group; "" if nothing. Sorts them.
std::string settle_group(Group& group, const std::vector<Group>& known, int ranks);

/// The ranks of every group, ascending: those that the order names, else those whose lists call it.
/// O(actions).
std::map<std::string, std::vector<RankId>> ranks_by_group(const Order& order);

/// Groups that only one rank of a whole order calls, and whose ranks nobody names: sentences that
/// begin with the place.
std::vector<std::string> lonely_group_problems(const Order& order, std::size_t most);

/// True if some list holds a call, and none anything else but idle slots: such an order lacks
/// nothing.
bool holds_calls_alone(const Order& order);

}  // namespace pipewright
