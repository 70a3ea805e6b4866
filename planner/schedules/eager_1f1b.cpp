// Eager 1F1B: 1F1B with twice the run-ahead. A rank may hold 2(p-r)-1 activations, so that there is
// always one more micro-batch under way on each hop: transfers hide, at up to twice the memory. The
// rule is Paddle's Eager1F1B pass (pipeline_eager_1f1b.py) and minPP's in-flight cap; Paddle
// refuses m < 2p-1, here a rank then runs all its forwards first.
#include <algorithm>

#include "planner/schedules/building.hpp"
#include "planner/schedules/entries.hpp"

namespace pipewright::planner {
namespace {

std::optional<std::string> refuse_eager_1f1b(const ScheduleRequest& request) {
  return refuse_chunks("eager-1f1b", request);
}

Order make_eager_1f1b(const ScheduleRequest& request) {
  const int m = request.micro_batches;
  Order order = empty_order(request, 2 * static_cast<std::size_t>(m));
  for (int r = 0; r < request.ranks; ++r) {
    auto& cells = order.ranks[static_cast<std::size_t>(r)];
    const int ahead = std::min(2 * (request.ranks - 1 - r), m);
    for (int k = 0; k < ahead; ++k) append(cells, ActionKind::F, r, k);
    for (int k = 0; k < m; ++k) {
      if (ahead + k < m) append(cells, ActionKind::F, r, ahead + k);
      append(cells, ActionKind::B, r, k);
    }
  }
  return order;
}

}  // namespace

Schedule eager_1f1b_schedule() {
  Schedule entry;
  entry.name = "eager-1f1b";
  entry.aliases = {"Eager1F1B"};
  entry.text.summary = "1F1B with twice the run-ahead: hides transfers, for twice the activations";
  entry.text.constraint = "v = 1; any p, m (Paddle itself asks for m >= 2p-1)";
  entry.text.bubble = "(p-1)(F+B)";
  entry.text.memory = "min(2(p-r)-1, m)";
  entry.text.source = "PaddlePaddle pipeline_eager_1f1b.py (pull 57605); minPP's eager 1F1B";
  entry.refusal = refuse_eager_1f1b;
  entry.make = make_eager_1f1b;
  return entry;
}

}  // namespace pipewright::planner
