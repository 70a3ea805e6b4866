#include "planner/fix/listed_order.hpp"

#include <algorithm>
#include <iterator>

#include "core/program/lower.hpp"

namespace pipewright::planner {

Order order_of_program(const Program& program) {
  Order order{.ranks = {}, .placement = program.placement, .micro_batches = program.micro_batches};
  for (int r = 0; r < program.ranks(); ++r) order.ranks.push_back(cells_of(program, RankId(r)));
  return order;
}

Order listed_order(const Order& order, const CommPolicy& policy) {
  if (!order.calls.empty()) return order;
  return order_of_program(lower(order, policy));
}

CommPolicy as_written(const CommPolicy& policy) {
  CommPolicy written = policy;
  written.post = Post::Early;
  written.run_order = RunOrder::AsLowered;
  return written;
}

Order computations_of(const Order& order) {
  Order kept{.ranks = {}, .placement = order.placement, .micro_batches = order.micro_batches};
  kept.ranks.reserve(order.ranks.size());
  for (const auto& row : order.ranks) {
    auto& cells = kept.ranks.emplace_back();
    cells.reserve(row.size());
    for (const Cell& cell : row) {
      const ActionKind kind = cell.action.kind;
      if (!is_transfer(kind) && !is_wait_for_send(kind)) cells.push_back(cell);
    }
  }
  return kept;
}

void put_waits_last(Order& order, const Order& listed) {
  for (std::size_t r = 0; r < listed.ranks.size(); ++r) {
    std::copy_if(listed.ranks[r].begin(), listed.ranks[r].end(), std::back_inserter(order.ranks[r]),
                 [](const Cell& cell) { return is_wait_for_send(cell.action.kind); });
  }
}

}  // namespace pipewright::planner
