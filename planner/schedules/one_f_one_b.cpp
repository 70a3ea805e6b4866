// 1F1B: a rank runs ahead by as many forwards as there are ranks after it, then alternates one
// forward and one backward, so that it never holds more than p activations.
#include <algorithm>

#include "planner/schedules/building.hpp"
#include "planner/schedules/entries.hpp"
#include "planner/schedules/paddle_jobs.hpp"

namespace pipewright::planner {
namespace {

std::int64_t warm_up_forwards(const ScheduleRequest& request, int rank) {
  return std::min(request.ranks - 1 - rank, request.micro_batches);
}

std::optional<std::string> refuse_one_f_one_b(const ScheduleRequest& request) {
  if (auto refused = refuse_chunks("1f1b", request)) return refused;
  return refuse_jobs(request);
}

Order make_one_f_one_b(const ScheduleRequest& request) {
  if (const auto jobs = jobs_of(request)) {
    return make_paddle_order(request, *jobs, ChunkTurns(request.micro_batches, 1, 1),
                             warm_up_forwards);
  }
  const int m = request.micro_batches;
  Order order = empty_order(request, 2 * static_cast<std::size_t>(m));
  for (int r = 0; r < request.ranks; ++r) {
    auto& cells = order.ranks[static_cast<std::size_t>(r)];
    const int ahead = static_cast<int>(warm_up_forwards(request, r));
    for (int k = 0; k < ahead; ++k) append(cells, ActionKind::F, r, k);
    for (int k = 0; k < m; ++k) {
      if (ahead + k < m) append(cells, ActionKind::F, r, ahead + k);
      append(cells, ActionKind::B, r, k);
    }
  }
  return order;
}

}  // namespace

Schedule one_f_one_b_schedule() {
  Schedule entry;
  entry.name = "1f1b";
  entry.aliases = {"PipeDream-Flush", "one-f-one-b"};
  entry.text.summary = "one forward, one backward: GPipe's bubble with at most p activations";
  entry.text.constraint = "v = 1; any p, m, also m < p";
  entry.text.bubble = "(p-1)(F+B)";
  entry.text.memory = "min(p-r, m)";
  entry.text.source =
      "PipeDream-Flush (arXiv:2006.09503); PyTorch Schedule1F1B; with the parameter jobs, Paddle's "
      "job lists and their transfer ends";
  entry.parameters = {"jobs"};
  entry.refusal = refuse_one_f_one_b;
  entry.make = make_one_f_one_b;
  return entry;
}

}  // namespace pipewright::planner
