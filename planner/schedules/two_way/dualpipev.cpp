// DualPipeV: DualPipe cut in half. The two directions become the two legs of a V on p ranks,
// without a second replica of the weights. A forward of one leg overlaps with a backward of the
// other.
#include "planner/schedules/building.hpp"
#include "planner/schedules/entries.hpp"
#include "planner/schedules/two_way/dualpipe_rank.hpp"

namespace pipewright::planner {
namespace {

std::optional<std::string> refuse_dualpipev(const ScheduleRequest& request) {
  if (auto refused = refuse_all_but_two_chunks("dualpipev", request)) return refused;
  if (request.micro_batches >= 2 * request.ranks) return std::nullopt;
  return "dualpipev needs at least 2p micro-batches to fill both legs: " +
         std::to_string(request.micro_batches) + " < " + std::to_string(2 * request.ranks) +
         "; use " + std::to_string(2 * request.ranks) + " micro-batches, or zbv";
}

Order make_dualpipev(const ScheduleRequest& request) {
  const int p = request.ranks, m = request.micro_batches;
  Order order =
      empty_order(request, 4 * static_cast<std::size_t>(m) + 2 * static_cast<std::size_t>(p));
  order.placement = Placement::v_shape(p);
  for (int r = 0; r < p; ++r) {
    write_dualpipe_rank(r, p, m, {r, 0}, {2 * p - 1 - r, 0},
                        order.ranks[static_cast<std::size_t>(r)]);
  }
  return order;
}

}  // namespace

Schedule dualpipev_schedule() {
  Schedule entry;
  entry.name = "dualpipev";
  entry.traits.overlaps = true;
  entry.text.summary = "DualPipe on a V: forwards overlap with backwards, one copy of the weights";
  entry.text.constraint = "v = 2; m >= 2p";
  entry.text.bubble = "(p-1)(F&B + B - 3W) for F = I = W; (p-1)(F+2I-W) for F = I >= W, F&B = F+B";
  entry.text.memory = "2p+1 chunks";
  entry.text.source = "deepseek-ai/DualPipe dualpipev.py; PyTorch ScheduleDualPipeV";
  entry.traits.splits_backward = true;
  entry.default_chunks = 2;
  entry.layout = Layout::V;
  entry.refusal = refuse_dualpipev;
  entry.make = make_dualpipev;
  return entry;
}

}  // namespace pipewright::planner
