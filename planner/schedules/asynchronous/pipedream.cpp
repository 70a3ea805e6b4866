// PipeDream: 1F1B that never flushes. A rank updates its weights after every backward, so in the
// steady state nothing waits; each micro-batch's backward uses the weights of its forward again
// (weight stashing), which are kept until then. Version k of a stage are its weights after k
// updates of its rank. The paper's pipeline never ends; the order here is the first m
// micro-batches.
#include <algorithm>

#include "planner/schedules/building.hpp"
#include "planner/schedules/entries.hpp"

namespace pipewright::planner {
namespace {

std::optional<std::string> refuse_pipedream(const ScheduleRequest& request) {
  return refuse_chunks("pipedream", request);
}

Order make_pipedream(const ScheduleRequest& request) {
  const int m = request.micro_batches;
  Order order = empty_order(request, 3 * static_cast<std::size_t>(m));
  for (int r = 0; r < request.ranks; ++r) {
    auto& cells = order.ranks[static_cast<std::size_t>(r)];
    const int ahead = std::min(request.ranks - 1 - r, m);
    // Forward k comes after the update of backward k - ahead - 1.
    const auto version = [ahead](int k) { return std::max(0, k - ahead); };
    for (int k = 0; k < ahead; ++k) append_version(cells, ActionKind::F, r, k, version(k));
    for (int k = 0; k < m; ++k) {
      const int next = ahead + k;
      if (next < m) append_version(cells, ActionKind::F, r, next, version(next));
      append_version(cells, ActionKind::B, r, k, version(k));
      append_update(cells);
    }
  }
  return order;
}

}  // namespace

Schedule pipedream_schedule() {
  Schedule entry;
  entry.name = "pipedream";
  entry.text.summary =
      "1F1B without flush: an update after every backward, weights stashed until then";
  entry.text.constraint = "v = 1; any p, m";
  entry.text.bubble = "none in the steady state; (p-1)(F+B) for m micro-batches from start to end";
  entry.text.memory = "min(p-r, m), each with its weight version";
  entry.text.source = "PipeDream (arXiv:1806.03377; SOSP 2019), msr-fiddle/pipedream runtime.py";
  entry.traits.asynchronous = true;
  entry.refusal = refuse_pipedream;
  entry.make = make_pipedream;
  return entry;
}

}  // namespace pipewright::planner
