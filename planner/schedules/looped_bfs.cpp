// Looped BFS (breadth-first pipeline parallelism): GPipe with v chunks a rank. All micro-batches go
// through a chunk before any goes through the next; backwards in the opposite order of both. Rule
// and idle slots are those of PyTorch's ScheduleLoopedBFS.
#include "planner/schedules/building.hpp"
#include "planner/schedules/entries.hpp"

namespace pipewright::planner {
namespace {

std::optional<std::string> refuse_looped_bfs(const ScheduleRequest&) { return std::nullopt; }

Order make_looped_bfs(const ScheduleRequest& request) {
  const int p = request.ranks, m = request.micro_batches, v = request.chunks;
  Order order = empty_order(request, 2 * static_cast<std::size_t>(m) * static_cast<std::size_t>(v) +
                                         2 * static_cast<std::size_t>(p));
  for (int r = 0; r < p; ++r) {
    auto& cells = order.ranks[static_cast<std::size_t>(r)];
    append_idle(cells, r);
    for (int chunk = 0; chunk < v; ++chunk) {
      for (int k = 0; k < m; ++k) append(cells, ActionKind::F, chunk * p + r, k);
    }
    append_idle(cells, 2 * (p - 1 - r));
    for (int chunk = v - 1; chunk >= 0; --chunk) {
      for (int k = m - 1; k >= 0; --k) append(cells, ActionKind::B, chunk * p + r, k);
    }
  }
  return order;
}

}  // namespace

Schedule looped_bfs_schedule() {
  Schedule entry;
  entry.name = "looped-bfs";
  entry.aliases = {"LoopedBFS", "breadth-first"};
  entry.text.summary = "GPipe with v chunks a rank: 1/v of its bubble, all activations live";
  entry.text.constraint = "any p, m, v";
  entry.text.bubble = "(p-1 + (v-1)max(0, p-m))(F+B) of one chunk";
  entry.text.memory = "vm chunks";
  entry.text.source =
      "Breadth-First Pipeline Parallelism (arXiv:2211.05953); PyTorch ScheduleLoopedBFS";
  entry.default_chunks = 2;
  entry.refusal = refuse_looped_bfs;
  entry.make = make_looped_bfs;
  return entry;
}

}  // namespace pipewright::planner
