// ZB-H1: 1F1B with the backward split. I goes on at once, W fills the drain: rank r keeps r of its
// W's back, so that every rank holds p activations and no more.
#include <algorithm>

#include "planner/schedules/building.hpp"
#include "planner/schedules/entries.hpp"

namespace pipewright::planner {
namespace {

std::optional<std::string> refuse_zb_h1(const ScheduleRequest& request) {
  return refuse_chunks("zb-h1", request);
}

Order make_zb_h1(const ScheduleRequest& request) {
  const int m = request.micro_batches;
  Order order = empty_order(request, 3 * static_cast<std::size_t>(m));
  for (int r = 0; r < request.ranks; ++r) {
    auto& cells = order.ranks[static_cast<std::size_t>(r)];
    const int ahead = std::min(request.ranks - 1 - r, m);
    for (int k = 0; k < ahead; ++k) append(cells, ActionKind::F, r, k);
    for (int k = 0; k < m; ++k) {
      if (ahead + k < m) append(cells, ActionKind::F, r, ahead + k);
      append(cells, ActionKind::I, r, k);
      if (k >= r) append(cells, ActionKind::W, r, k - r);
    }
    for (int k = std::max(0, m - r); k < m; ++k) append(cells, ActionKind::W, r, k);
  }
  return order;
}

}  // namespace

Schedule zb_h1_schedule() {
  Schedule entry;
  entry.name = "zb-h1";
  entry.aliases = {"zero-bubble-h1"};
  entry.text.summary = "1F1B with I and W apart: W fills the drain, with 1F1B's memory";
  entry.text.constraint = "v = 1; any p, m";
  entry.text.bubble = "(p-1)max(F,I) + (q-1)max(0, min(F,I)-W) + (p-q)min(F,I), q = min(m,p)";
  entry.text.memory = "min(p, m)";
  entry.text.source =
      "Zero Bubble Pipeline Parallelism (arXiv:2401.10241), get_hand_schedule of its authors' "
      "code; "
      "Paddle's ZBH1 is another order";
  entry.traits.splits_backward = true;
  entry.refusal = refuse_zb_h1;
  entry.make = make_zb_h1;
  return entry;
}

}  // namespace pipewright::planner
