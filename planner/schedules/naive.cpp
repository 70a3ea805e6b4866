// Model parallelism without a pipeline: a micro-batch goes forward through all stages and back
// before the next one starts. Every other schedule has to beat it.
#include "planner/schedules/building.hpp"
#include "planner/schedules/entries.hpp"

namespace pipewright::planner {
namespace {

std::optional<std::string> refuse_naive(const ScheduleRequest& request) {
  return refuse_chunks("naive", request);
}

Order make_naive(const ScheduleRequest& request) {
  Order order = empty_order(request, 2 * static_cast<std::size_t>(request.micro_batches));
  for (int r = 0; r < request.ranks; ++r) {
    auto& cells = order.ranks[static_cast<std::size_t>(r)];
    for (int m = 0; m < request.micro_batches; ++m) {
      append(cells, ActionKind::F, r, m);
      append(cells, ActionKind::B, r, m);
    }
  }
  return order;
}

}  // namespace

Schedule naive_schedule() {
  Schedule entry;
  entry.name = "naive";
  entry.aliases = {"model-parallel", "sequential"};
  entry.text.summary = "one micro-batch at a time through all stages and back: the baseline";
  entry.text.constraint = "v = 1; any p, m";
  entry.text.bubble = "m(p-1)(F+B)";
  entry.text.memory = "1";
  entry.text.source =
      "model parallelism as GPipe's paper describes it, section 2 (arXiv:1811.06965)";
  entry.traits.one_at_a_time = true;
  entry.refusal = refuse_naive;
  entry.make = make_naive;
  return entry;
}

}  // namespace pipewright::planner
