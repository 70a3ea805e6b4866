#include "planner/schedules/growing_order.hpp"

#include <utility>

#include "core/error.hpp"
#include "planner/schedules/building.hpp"

namespace pipewright::planner {

GrowingOrder nothing_yet(const PlannedCosts& costs) {
  const std::size_t ranks = static_cast<std::size_t>(costs.ranks);
  const std::size_t each =
      static_cast<std::size_t>(costs.chunks) * static_cast<std::size_t>(costs.micro_batches);
  GrowingOrder order;
  begin_again(order, costs);
  order.end_f.resize(ranks * each);
  order.end_i.resize(ranks * each);
  order.actions.resize(3 * ranks * each);
  order.due.resize(ranks * each);
  return order;
}

void begin_again(GrowingOrder& order, const PlannedCosts& costs) {
  const std::size_t each =
      static_cast<std::size_t>(costs.chunks) * static_cast<std::size_t>(costs.micro_batches);
  order.ranks.assign(static_cast<std::size_t>(costs.ranks), {});
  for (std::size_t r = 0; r < order.ranks.size(); ++r)
    order.ranks[r].next_w = order.ranks[r].end_w = r * each;
  order.stages.assign(costs.stages.size(), {});
  order.worst_idle = 0;
}

ApprovedWaits approved(const GrowingOrder& order) {
  ApprovedWaits waits;
  for (const GrowingRank& rank : order.ranks) waits.idle.push_back(rank.idle);
  waits.worst = order.worst_idle;
  return waits;
}

Order grown(const GrowingOrder& order, const PlannedCosts& costs, Placement placement) {
  const std::size_t each =
      3 * static_cast<std::size_t>(costs.chunks) * static_cast<std::size_t>(costs.micro_batches);
  Order whole;
  whole.placement = std::move(placement);
  whole.micro_batches = costs.micro_batches;
  whole.ranks.resize(order.ranks.size());
  std::vector<std::int32_t> next(4 * order.stages.size(), 0);  // by stage and kind
  for (std::size_t r = 0; r < whole.ranks.size(); ++r) {
    PIPEWRIGHT_ASSERT(order.ranks[r].actions == each, "a rank's order is not whole");
    whole.ranks[r].reserve(each);
    for (std::size_t n = 0; n < each; ++n) {
      const std::uint32_t action = order.actions[r * each + n];
      append(whole.ranks[r], static_cast<ActionKind>(action % 4), static_cast<int>(action / 4),
             next[action]++);
    }
  }
  return whole;
}

std::int64_t makespan_of(const GrowingOrder& order) {
  std::int64_t makespan = 0;
  for (const GrowingRank& rank : order.ranks) makespan = std::max(makespan, rank.clock);
  return makespan;
}

}  // namespace pipewright::planner
