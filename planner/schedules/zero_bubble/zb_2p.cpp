// ZB-2p: the zero-bubble heuristic with room for 2p activations on each rank: with equal costs no
// rank waits once it has begun.
#include "planner/schedules/entries.hpp"
#include "planner/schedules/zero_bubble/zero_bubble_rounds.hpp"

namespace pipewright::planner {
namespace {

std::optional<std::string> refuse_zb_2p(const ScheduleRequest& request) {
  return refuse_zero_bubble_rounds("zb-2p", request);
}

Order make_zb_2p(const ScheduleRequest& request) {
  return zero_bubble_rounds(request, 2 * request.ranks);
}

}  // namespace

Schedule zb_2p_schedule() {
  Schedule entry;
  entry.name = "zb-2p";
  entry.aliases = {"ZB2P"};
  entry.text.summary =
      "I and W apart, ordered for the given costs: hardly a wait, for twice the memory";
  entry.text.constraint = "v = 1; any p, m; a memory limit of at least one forward";
  entry.text.bubble =
      "(p-1)F, of the span max(0, 2p-1-m)F, for F = I = W without latency and m >= p; else none "
      "known";
  entry.text.memory = "2p forwards, or the limit of --mem";
  entry.text.source =
      "Zero Bubble Pipeline Parallelism (arXiv:2401.10241) §3.1; scheduler/zb.py of its authors' "
      "code";
  entry.traits.splits_backward = true;
  entry.traits.cost_driven = true;
  entry.refusal = refuse_zb_2p;
  entry.make = make_zb_2p;
  return entry;
}

}  // namespace pipewright::planner
