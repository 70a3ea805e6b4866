#include "core/order/forward_order.hpp"

#include <algorithm>

namespace pipewright {
namespace {

bool belongs_to_forward(ActionKind kind) {
  return kind == ActionKind::F || kind == ActionKind::SendF || kind == ActionKind::RecvF;
}

void append_forward(std::vector<Cell>& row, Action action) {
  if (!belongs_to_forward(action.kind)) return;
  action.version = -1;
  row.push_back({action, std::nullopt});
}

}  // namespace

bool is_forward_only(const Order& order) {
  return std::all_of(order.ranks.begin(), order.ranks.end(), [](const auto& row) {
    return std::none_of(row.begin(), row.end(), [](const Cell& cell) {
      return belongs_to_backward(cell.action.kind) ||
             (cell.partner && belongs_to_backward(cell.partner->kind));
    });
  });
}

Order forward_order(const Order& order) {
  Order forward;
  forward.placement = order.placement;
  forward.micro_batches = order.micro_batches;
  for (const auto& row : order.ranks) {
    auto& cells = forward.ranks.emplace_back();
    for (const Cell& cell : row) {
      append_forward(cells, cell.action);
      if (cell.partner) append_forward(cells, *cell.partner);
    }
  }
  return forward;
}

}  // namespace pipewright
