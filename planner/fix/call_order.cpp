#include "planner/fix/call_order.hpp"

#include <algorithm>
#include <deque>
#include <vector>

#include "core/order/call_faults.hpp"

namespace pipewright::planner {
namespace {

bool is_ordered(const Action& action) {
  return is_group_collective(action.kind) || action.kind == ActionKind::NewGroup;
}

/// What a call is, whatever stream it stands in: members of one collective are equal in it.
std::string name_of(const Order& order, const Action& action) {
  Call call = order.calls[static_cast<std::size_t>(action.micro_batch.value)];
  call.stream.clear();
  return to_string(call);
}

class OneOrder {
 public:
  explicit OneOrder(const Order& order) : order_(order), waiting_(order.ranks.size()) {
    for (std::size_t r = 0; r < order.ranks.size(); ++r) {
      for (const Cell& cell : order.ranks[r]) {
        if (is_ordered(cell.action)) waiting_[r].push_back(cell.action);
      }
    }
  }

  CallOrder make() {
    taken_.resize(waiting_.size());
    for (std::size_t r = 0; r < waiting_.size(); ++r) {
      while (!waiting_[r].empty()) {
        const Action next = waiting_[r].front();
        if (!take(next)) return {{}, std::move(refusal_)};
      }
    }
    return {rewritten(), ""};
  }

 private:
  std::vector<RankId> ranks_of(const Action& call) const {
    if (call.kind == ActionKind::NewGroup) {
      std::vector<RankId> all;
      for (int r = 0; r < order_.rank_count(); ++r) all.emplace_back(r);
      return all;
    }
    return ranks_of_group(order_,
                          order_.calls[static_cast<std::size_t>(call.micro_batch.value)].group);
  }

  /// The collective is the next of all its ranks.
  bool take(const Action& call) {
    const std::string name = name_of(order_, call);
    for (const RankId rank : ranks_of(call)) {
      const auto r = static_cast<std::size_t>(rank.value);
      const auto found = std::ranges::find_if(
          waiting_[r], [&](const Action& each) { return name_of(order_, each) == name; });
      if (found == waiting_[r].end()) {
        refusal_ = "rank " + std::to_string(rank.value) + " lacks " + name +
                   ", which other ranks of the group have as often";
        return false;
      }
      taken_[r].push_back(*found);
      waiting_[r].erase(found);
    }
    return true;
  }

  Order rewritten() const {
    Order order = order_;
    for (std::size_t r = 0; r < order.ranks.size(); ++r) {
      std::size_t next = 0;
      for (Cell& cell : order.ranks[r]) {
        if (is_ordered(cell.action)) cell.action = taken_[r][next++];
      }
    }
    return order;
  }

  const Order& order_;
  std::vector<std::deque<Action>> waiting_;  // by rank, in its own order
  std::vector<std::vector<Action>> taken_;   // by rank, in the one order
  std::string refusal_;
};

}  // namespace

CallOrder calls_in_one_order(const Order& order) { return OneOrder(order).make(); }

}  // namespace pipewright::planner
