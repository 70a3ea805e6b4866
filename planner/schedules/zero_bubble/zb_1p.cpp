// ZB-1p: the zero-bubble heuristic within 1F1B's memory, p activations on each rank.
#include "planner/schedules/entries.hpp"
#include "planner/schedules/zero_bubble/zero_bubble_rounds.hpp"

namespace pipewright::planner {
namespace {

std::optional<std::string> refuse_zb_1p(const ScheduleRequest& request) {
  return refuse_zero_bubble_rounds("zb-1p", request);
}

Order make_zb_1p(const ScheduleRequest& request) {
  return zero_bubble_rounds(request, request.ranks);
}

}  // namespace

Schedule zb_1p_schedule() {
  Schedule entry;
  entry.name = "zb-1p";
  entry.aliases = {"ZB1P"};
  entry.text.summary = "I and W apart, ordered for the given costs within 1F1B's memory";
  entry.text.constraint = "v = 1; any p, m; a memory limit of at least one forward";
  entry.text.bubble = "(p-1)F for F = I = W without latency and m >= p; else none known";
  entry.text.memory = "p forwards, or the limit of --mem";
  entry.text.source =
      "Zero Bubble Pipeline Parallelism (arXiv:2401.10241) §3.1; scheduler/zb.py of its authors' "
      "code";
  entry.traits.splits_backward = true;
  entry.traits.cost_driven = true;
  entry.refusal = refuse_zb_1p;
  entry.make = make_zb_1p;
  return entry;
}

}  // namespace pipewright::planner
