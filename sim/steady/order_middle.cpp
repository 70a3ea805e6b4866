#include "sim/steady/order_middle.hpp"

namespace pipewright::sim {
namespace {

Action later(Action action, int micro_batches) {
  if (has_micro_batch(action.kind))
    action.micro_batch = MicroBatchId(std::int64_t{action.micro_batch.value} + micro_batches);
  return action;
}

bool is_later(const Cell& cell, const Cell& than, int micro_batches) {
  if (cell.batched != than.batched || cell.partner.has_value() != than.partner.has_value())
    return false;
  if (cell.action != later(than.action, micro_batches)) return false;
  return !cell.partner || *cell.partner == later(*than.partner, micro_batches);
}

std::optional<Middle> middle_of_rank(const std::vector<Cell>& cells,
                                     const std::vector<Cell>& longer, int micro_batches) {
  if (longer.size() <= cells.size()) return std::nullopt;
  Middle found;
  const std::size_t period = longer.size() - cells.size();
  if (cells.size() < 2 * period) return std::nullopt;
  const auto repeats = [&](std::size_t at) {
    return is_later(cells[at + period], cells[at], micro_batches);
  };
  found.period = period;
  found.begin = found.end = (cells.size() - period) / 2;
  while (found.begin > 0 && repeats(found.begin - 1)) --found.begin;
  while (found.end + period < cells.size() && repeats(found.end)) ++found.end;
  found.end += period;
  if (found.end - found.begin < 2 * period) return std::nullopt;
  for (std::size_t at = 0; at < found.end; ++at) {
    if (longer[at] != cells[at]) return std::nullopt;
  }
  for (std::size_t at = found.begin; at < cells.size(); ++at) {
    if (!is_later(longer[at + period], cells[at], micro_batches)) return std::nullopt;
  }
  return found;
}

}  // namespace

std::optional<OrderMiddle> middle_of(const Order& order, const Order& longer) {
  OrderMiddle middle;
  middle.micro_batches = longer.micro_batches - order.micro_batches;
  if (middle.micro_batches < 1 || order.ranks.size() != longer.ranks.size()) return std::nullopt;
  for (std::size_t r = 0; r < order.ranks.size(); ++r) {
    const auto rank = middle_of_rank(order.ranks[r], longer.ranks[r], middle.micro_batches);
    if (!rank) return std::nullopt;
    middle.ranks.push_back(*rank);
  }
  return middle;
}

}  // namespace pipewright::sim
