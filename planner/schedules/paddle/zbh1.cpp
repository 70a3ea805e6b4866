// Paddle's ZBH1: rank r splits only r + 1 of its backwards, the first r and the last; the others
// stay whole, and the r weight gradients that were kept back fill its drain. Not the order of the
// paper's ZB-H1, which splits all. The rule is Paddle's pass pipeline_zero_bubble.py (pull 62865).
#include <algorithm>

#include "planner/schedules/building.hpp"
#include "planner/schedules/entries.hpp"

namespace pipewright::planner {
namespace {

std::optional<std::string> refuse_paddle_zbh1(const ScheduleRequest& request) {
  if (auto refused = refuse_chunks("paddle-zbh1", request)) return refused;
  if (request.micro_batches >= request.ranks) return std::nullopt;
  return "paddle-zbh1 needs at least as many micro-batches as ranks: " +
         std::to_string(request.micro_batches) + " < " + std::to_string(request.ranks) + "; use " +
         std::to_string(request.ranks) + " micro-batches, or zb-h1";
}

Order make_paddle_zbh1(const ScheduleRequest& request) {
  const int p = request.ranks, m = request.micro_batches;
  Order order = empty_order(request, 2 * static_cast<std::size_t>(m) + static_cast<std::size_t>(p));
  for (int r = 0; r < p; ++r) {
    auto& cells = order.ranks[static_cast<std::size_t>(r)];
    const int ahead = p - r;
    for (int k = 0; k < ahead; ++k) append(cells, ActionKind::F, r, k);
    for (int k = 0; k < m - 1; ++k) {
      append(cells, k < r ? ActionKind::I : ActionKind::B, r, k);
      if (ahead + k < m) append(cells, ActionKind::F, r, ahead + k);
    }
    append(cells, r > 0 ? ActionKind::I : ActionKind::B, r, m - 1);
    if (r > 0) append(cells, ActionKind::W, r, m - 1);
    for (int k = 0; k < r; ++k) append(cells, ActionKind::W, r, k);
  }
  return order;
}

}  // namespace

Schedule paddle_zbh1_schedule() {
  Schedule entry;
  entry.name = "paddle-zbh1";
  entry.aliases = {"ZBH1", "PaddleZBH1"};
  entry.text.summary = "Paddle's ZB-H1: 1F1B where rank r splits r + 1 backwards to fill its drain";
  entry.text.constraint = "v = 1; m >= p";
  entry.text.bubble = "none known";
  entry.text.memory = "p";
  entry.text.source = "PaddlePaddle pipeline_zero_bubble.py (pull 62865)";
  entry.traits.splits_backward = true;
  entry.refusal = refuse_paddle_zbh1;
  entry.make = make_paddle_zbh1;
  return entry;
}

}  // namespace pipewright::planner
