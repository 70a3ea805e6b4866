// ZB-H2: ZB-H1 with twice the run-ahead and twice as many W's kept back, so that nothing waits for
// the first gradient. The bubble becomes a parallelogram: the ranks' spans are without gaps, the
// fill remains. The rule is get_hand_schedule with warmup_c = 2 of the authors' code; its script
// asserts m >= 2p, here fewer micro-batches are taken as they are (a rank runs ahead by m at most).
#include <algorithm>

#include "planner/schedules/building.hpp"
#include "planner/schedules/entries.hpp"

namespace pipewright::planner {
namespace {

std::optional<std::string> refuse_zb_h2(const ScheduleRequest& request) {
  return refuse_chunks("zb-h2", request);
}

Order make_zb_h2(const ScheduleRequest& request) {
  const int m = request.micro_batches;
  Order order = empty_order(request, 3 * static_cast<std::size_t>(m));
  for (int r = 0; r < request.ranks; ++r) {
    auto& cells = order.ranks[static_cast<std::size_t>(r)];
    const int ahead = std::min(2 * (request.ranks - 1 - r), m);
    const int kept_back = 2 * r;
    for (int k = 0; k < ahead; ++k) append(cells, ActionKind::F, r, k);
    for (int k = 0; k < m; ++k) {
      if (ahead + k < m) append(cells, ActionKind::F, r, ahead + k);
      append(cells, ActionKind::I, r, k);
      if (k >= kept_back) append(cells, ActionKind::W, r, k - kept_back);
    }
    for (int k = std::max(0, m - kept_back); k < m; ++k) append(cells, ActionKind::W, r, k);
  }
  return order;
}

}  // namespace

Schedule zb_h2_schedule() {
  Schedule entry;
  entry.name = "zb-h2";
  entry.aliases = {"zero-bubble-h2"};
  entry.text.summary = "ZB-H1 with twice the run-ahead: no bubble inside a rank's span";
  entry.text.constraint = "v = 1; any p, m; made for m >= 2p-1";
  entry.text.bubble =
      "(p-1)max(F, I-F, F+I-2W) for m >= 2p-1; of the longest span (p-1)max(0, I-F, F+I-2W)";
  entry.text.memory = "min(2p-1, m)";
  entry.text.source =
      "Zero Bubble Pipeline Parallelism (arXiv:2401.10241), get_hand_schedule of its authors' code";
  entry.traits.splits_backward = true;
  entry.refusal = refuse_zb_h2;
  entry.make = make_zb_h2;
  return entry;
}

}  // namespace pipewright::planner
