#include "planner/fix/warm_up.hpp"

#include <algorithm>

namespace pipewright::planner {
namespace {

bool is_backward(const Cell& cell) {
  return cell.action.kind == ActionKind::I || cell.action.kind == ActionKind::B;
}
bool is_forward(const Cell& cell) { return cell.action.kind == ActionKind::F; }

}  // namespace

bool can_warm_up(const Order& computations, RankId rank) {
  const auto& row = computations.ranks[static_cast<std::size_t>(rank.value)];
  const auto tied = [](const Cell& cell) {
    return cell.partner || is_transfer(cell.action.kind) || cell.action.version >= 0;
  };
  if (std::any_of(row.begin(), row.end(), tied)) return false;
  const auto first = std::find_if(row.begin(), row.end(), is_backward);
  return std::any_of(first, row.end(), is_forward);
}

void warm_up_once_more(Order& computations, RankId rank) {
  auto& row = computations.ranks[static_cast<std::size_t>(rank.value)];
  const auto first_backward = std::find_if(row.begin(), row.end(), is_backward);
  auto at = std::find_if(first_backward, row.end(), is_forward);
  std::rotate(first_backward, at, at + 1);
  for (auto slot = at + 1;; slot = at + 1) {  // the place that the forward before has left
    at = std::find_if(slot, row.end(), is_forward);
    if (at == row.end()) return;
    std::rotate(slot, at, at + 1);
  }
}

}  // namespace pipewright::planner
