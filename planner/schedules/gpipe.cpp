// GPipe: all forwards, then all backwards, both with ascending micro-batches.
#include "planner/schedules/building.hpp"
#include "planner/schedules/entries.hpp"

namespace pipewright::planner {
namespace {

std::optional<std::string> refuse_gpipe(const ScheduleRequest& request) {
  return refuse_chunks("gpipe", request);
}

/// Idle slots as PyTorch's generator has them: r before the first forward, 3(p-1-r) before the
/// first backward.
Order make_gpipe(const ScheduleRequest& request) {
  Order order = empty_order(request, 2 * static_cast<std::size_t>(request.micro_batches) +
                                         3 * static_cast<std::size_t>(request.ranks));
  for (int r = 0; r < request.ranks; ++r) {
    auto& cells = order.ranks[static_cast<std::size_t>(r)];
    append_idle(cells, r);
    for (int m = 0; m < request.micro_batches; ++m) append(cells, ActionKind::F, r, m);
    append_idle(cells, 3 * (request.ranks - 1 - r));
    for (int m = 0; m < request.micro_batches; ++m) append(cells, ActionKind::B, r, m);
  }
  return order;
}

}  // namespace

Schedule gpipe_schedule() {
  Schedule entry;
  entry.name = "gpipe";
  entry.aliases = {"FThenB", "F-then-B", "AFAB"};
  entry.text.summary = "all forwards, then all backwards";
  entry.text.constraint = "v = 1; any p, m";
  entry.text.bubble = "(p-1)(F+B)";
  entry.text.memory = "m";
  entry.text.source = "GPipe (arXiv:1811.06965); PyTorch ScheduleGPipe; Paddle FThenB";
  entry.refusal = refuse_gpipe;
  entry.make = make_gpipe;
  return entry;
}

}  // namespace pipewright::planner
