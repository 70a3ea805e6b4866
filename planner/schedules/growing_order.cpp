#include "planner/schedules/growing_order.hpp"

#include <utility>

#include "planner/schedules/building.hpp"

namespace pipewright::planner {

GrowingOrder nothing_yet(const PlannedCosts& costs) {
  const std::size_t ranks = static_cast<std::size_t>(costs.ranks);
  const std::size_t each =
      static_cast<std::size_t>(costs.chunks) * static_cast<std::size_t>(costs.micro_batches);
  GrowingOrder order;
  order.ranks.resize(ranks);
  for (std::size_t r = 0; r < ranks; ++r) order.ranks[r].next_w = order.ranks[r].end_w = r * each;
  order.stages.resize(costs.stages.size());
  order.end_f.resize(ranks * each);
  order.end_i.resize(ranks * each);
  order.actions.resize(3 * ranks * each);
  order.due.resize(ranks * each);
  return order;
}

void go_back(GrowingOrder& order, const Growth& earlier) { static_cast<Growth&>(order) = earlier; }

void keep_actions(GrowingOrder& order, const Growth& earlier, std::vector<std::uint32_t>& kept) {
  // Both lists begin with the actions until `earlier`, so that they can take turns.
  if (kept.empty()) {
    kept = order.actions;
  } else {
    std::swap(kept, order.actions);
  }
  go_back(order, earlier);
}

ApprovedWaits approved(const Growth& growth) {
  ApprovedWaits waits;
  waits.idle.reserve(growth.ranks.size());
  for (const GrowingRank& rank : growth.ranks) waits.idle.push_back(rank.idle);
  waits.worst = growth.worst_idle;
  return waits;
}

Order order_of(const std::vector<std::uint32_t>& actions, const PlannedCosts& costs,
               Placement placement) {
  const std::size_t ranks = static_cast<std::size_t>(costs.ranks), each = actions.size() / ranks;
  Order order;
  order.placement = std::move(placement);
  order.micro_batches = costs.micro_batches;
  order.ranks.resize(ranks);
  std::vector<std::int32_t> next(4 * costs.stages.size(), 0);  // by stage and kind
  for (std::size_t r = 0; r < ranks; ++r) {
    order.ranks[r].reserve(each);
    for (std::size_t n = 0; n < each; ++n) {
      const std::uint32_t action = actions[r * each + n];
      append(order.ranks[r], static_cast<ActionKind>(action % 4), static_cast<int>(action / 4),
             next[action]++);
    }
  }
  return order;
}

std::int64_t i_left(const Growth& growth, const PlannedCosts& costs) {
  std::int64_t left = 0;
  for (const GrowingStage& stage : growth.stages) left += costs.micro_batches - stage.i;
  return left;
}

std::int64_t least_makespan(const Growth& growth, const PlannedCosts& costs) {
  std::int64_t least = 0;
  for (std::size_t r = 0; r < growth.ranks.size(); ++r)
    least = std::max(least, growth.ranks[r].begin + costs.busy[r] + growth.ranks[r].idle);
  return least;
}

std::int64_t least_span(const Growth& growth, const PlannedCosts& costs) {
  std::int64_t least = 0;
  for (std::size_t r = 0; r < growth.ranks.size(); ++r)
    least = std::max(least, costs.busy[r] + growth.ranks[r].idle);
  return least;
}

}  // namespace pipewright::planner
