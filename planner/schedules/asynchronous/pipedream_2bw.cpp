// PipeDream-2BW: 1F1B that never flushes, with gradients summed over `accumulate` micro-batches
// before each update, and weights one update behind: the micro-batches between two updates all use
// the version before the newest (delay 1), so that a rank keeps two versions and no more. A rank
// runs at most p-1 micro-batches ahead, so its next group of accumulate >= p micro-batches never
// needs an update that has not been made; with only one update in the order any number will do.
#include <algorithm>

#include "planner/base/number_text.hpp"
#include "planner/schedules/building.hpp"
#include "planner/schedules/entries.hpp"

namespace pipewright::planner {
namespace {

/// The smallest divisor of m that is at least p; m where there is none.
int default_accumulate(const ScheduleRequest& request) {
  const int m = request.micro_batches;
  for (int n = request.ranks; n < m; ++n) {
    if (m % n == 0) return n;
  }
  return m;
}

int accumulate_of(const ScheduleRequest& request) {
  const auto found = request.parameters.find("accumulate");
  if (found == request.parameters.end()) return default_accumulate(request);
  return positive_integer(found->second).value_or(0);
}

std::optional<std::string> refuse_pipedream_2bw(const ScheduleRequest& request) {
  if (auto refused = refuse_chunks("pipedream-2bw", request)) return refused;
  const int m = request.micro_batches, p = request.ranks, n = accumulate_of(request);
  if (n >= 1 && m % n == 0 && (n >= p || n == m)) return std::nullopt;
  const std::string nearest = "; use accumulate=" + std::to_string(default_accumulate(request));
  if (n < 1) {
    return "the parameter accumulate is a number of micro-batches, not \"" +
           request.parameters.at("accumulate") + "\"" + nearest;
  }
  if (m % n != 0) {
    return "pipedream-2bw updates after every " + std::to_string(n) + " micro-batches, and " +
           std::to_string(n) + " does not divide " + std::to_string(m) + nearest;
  }
  return "pipedream-2bw needs at least p micro-batches between two updates, or it would need more "
         "than two weight versions: " +
         std::to_string(n) + " < " + std::to_string(p) + nearest;
}

Order make_pipedream_2bw(const ScheduleRequest& request) {
  const int m = request.micro_batches, accumulate = accumulate_of(request);
  const auto version = [accumulate](int k) { return std::max(0, k / accumulate - 1); };
  Order order = empty_order(request, 3 * static_cast<std::size_t>(m));
  for (int r = 0; r < request.ranks; ++r) {
    auto& cells = order.ranks[static_cast<std::size_t>(r)];
    const int ahead = std::min(request.ranks - 1 - r, m);
    for (int k = 0; k < ahead; ++k) append_version(cells, ActionKind::F, r, k, version(k));
    for (int k = 0; k < m; ++k) {
      const int next = ahead + k;
      if (next < m) append_version(cells, ActionKind::F, r, next, version(next));
      append_version(cells, ActionKind::B, r, k, version(k));
      if ((k + 1) % accumulate == 0) append_update(cells);
    }
  }
  return order;
}

}  // namespace

Schedule pipedream_2bw_schedule() {
  Schedule entry;
  entry.name = "pipedream-2bw";
  entry.aliases = {"2BW"};
  entry.text.summary = "1F1B without flush, an update every few micro-batches, two weight versions";
  entry.text.constraint =
      "v = 1; m a multiple of accumulate, accumulate >= p or = m (default: the smallest such)";
  entry.text.bubble = "none in the steady state; (p-1)(F+B) for m micro-batches from start to end";
  entry.text.memory = "min(p-r, m)";
  entry.text.source = "Memory-Efficient Pipeline-Parallel DNN Training (arXiv:2006.09503)";
  entry.parameters = {"accumulate"};
  entry.traits.asynchronous = true;
  entry.refusal = refuse_pipedream_2bw;
  entry.make = make_pipedream_2bw;
  return entry;
}

}  // namespace pipewright::planner
