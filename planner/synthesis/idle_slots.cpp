#include "planner/synthesis/idle_slots.hpp"

#include <algorithm>
#include <utility>

#include "core/base/error.hpp"
#include "planner/synthesis/evaluate.hpp"

namespace pipewright::planner {

using namespace synthesis;

namespace {

/// The time of a pass: that of the shortest action, but long enough to keep an order's cells few.
std::int64_t pass_of(const Problem& problem, std::int64_t makespan) {
  std::int64_t shortest = kNever, longest_row = 1;
  for (const std::int64_t duration : problem.duration) {
    if (duration > 0) shortest = std::min(shortest, duration);
  }
  for (int r = 0; r < problem.ranks; ++r) {
    longest_row = std::max(
        longest_row, static_cast<std::int64_t>(problem.first[at(r) + 1] - problem.first[at(r)]));
  }
  return std::max({std::int64_t{1}, std::min(shortest, makespan), makespan / (3 * longest_row)});
}

}  // namespace

Order with_idle_slots(const SynthesisRequest& request, const Order& order) {
  SynthesisRequest same = request;
  // F, I, W or F, B: the one that the order is made of.
  same.split_backward = std::any_of(order.ranks.begin(), order.ranks.end(), [](const auto& cells) {
    return std::any_of(cells.begin(), cells.end(),
                       [](const Cell& cell) { return cell.action.kind == ActionKind::W; });
  });
  Problem problem = problem_of(same);
  if (auto turn = turn_of(order); turn.size() == problem.turn.size())
    problem.turn = std::move(turn);
  const auto sequence = sequence_of(problem, order);
  Evaluator evaluator(problem);
  if (!sequence || !evaluator.run(*sequence)) return order;
  const std::int64_t pass = pass_of(problem, evaluator.makespan());
  Order padded = order;
  for (int r = 0; r < problem.ranks; ++r) {
    auto& cells = padded.ranks[at(r)];
    cells.clear();
    std::size_t position = problem.first[at(r)];
    for (const Cell& cell : order.ranks[at(r)]) {
      const ActionKind kind = cell.action.kind;
      if (kind == ActionKind::Idle) continue;
      const std::int64_t place = evaluator.start_of(position) / pass;
      while (static_cast<std::int64_t>(cells.size()) < place)
        cells.push_back({.action = {.kind = ActionKind::Idle}});
      cells.push_back(cell);
      // A B among I's and W's is one of each.
      position += problem.kinds == 3 && kind == ActionKind::B ? 2 : 1;
    }
  }
  return padded;
}

}  // namespace pipewright::planner
