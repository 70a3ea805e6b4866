#include "planner/fix/call_order.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "core/order/call_faults.hpp"

namespace pipewright::planner {
namespace {

bool is_ordered(const Action& action) {
  return is_group_collective(action.kind) || action.kind == ActionKind::NewGroup;
}

/// By number of a call the first call that is the same but for its stream: members of one
/// collective are equal in it.
std::vector<std::size_t> equal_calls(const Order& order) {
  std::map<std::string, std::size_t> first;
  std::vector<std::size_t> equal;
  for (std::size_t k = 0; k < order.calls.size(); ++k) {
    Call call = order.calls[k];
    call.stream.clear();
    equal.push_back(first.try_emplace(to_string(call), k).first->second);
  }
  return equal;
}

class OneOrder {
 public:
  explicit OneOrder(const Order& order)
      : order_(order),
        equal_(equal_calls(order)),
        ranks_of_(ranks_by_group(order)),
        waiting_(order.ranks.size()),
        taken_(order.ranks.size()) {
    for (std::size_t r = 0; r < order.ranks.size(); ++r) {
      all_.emplace_back(static_cast<std::int64_t>(r));
      for (const Cell& cell : order.ranks[r]) {
        if (is_ordered(cell.action)) waiting_[r].push_back(cell.action);
      }
    }
  }

  CallOrder make() {
    for (auto& waiting : waiting_) {
      while (!waiting.empty()) {
        if (!take(Action(waiting.front()))) return {{}, std::move(refusal_)};
      }
    }
    return {rewritten(), ""};
  }

 private:
  std::size_t identity_of(const Action& call) const {
    return equal_[static_cast<std::size_t>(call.micro_batch.value)];
  }

  /// The collective is the next of all its ranks.
  bool take(const Action& call) {
    const auto& ranks =
        call.kind == ActionKind::NewGroup ? all_ : ranks_of_.at(order_.call(call).group);
    for (const RankId rank : ranks) {
      const auto r = static_cast<std::size_t>(rank.value);
      const auto found = std::ranges::find_if(
          waiting_[r], [&](const Action& each) { return identity_of(each) == identity_of(call); });
      if (found == waiting_[r].end()) {
        refusal_ = "rank " + std::to_string(rank.value) + " lacks " + name_of(call) +
                   ", which other ranks of the group have as often";
        return false;
      }
      taken_[r].push_back(*found);
      waiting_[r].erase(found);
    }
    return true;
  }

  std::string name_of(const Action& action) const {
    Call call = order_.call(action);
    call.stream.clear();
    return to_string(call);
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
  const std::vector<std::size_t> equal_;
  const std::map<std::string, std::vector<RankId>> ranks_of_;
  std::vector<RankId> all_;
  std::vector<std::deque<Action>> waiting_;  // by rank, in its own order
  std::vector<std::vector<Action>> taken_;   // by rank, in the one order
  std::string refusal_;
};

}  // namespace

CallOrder calls_in_one_order(const Order& order) { return OneOrder(order).make(); }

}  // namespace pipewright::planner
