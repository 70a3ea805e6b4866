// DualPipe: two replicas of the model on the same ranks, one each way, so that every rank holds an
// early stage of one direction and a late stage of the other, and overlaps a forward of the one
// with a backward of the other. The first half of the micro-batches enters at rank 0, the second
// half at rank p-1, as in deepseek-ai/DualPipe. Stage s stands on rank s for the first half and on
// rank p-1-s for the second.
#include <algorithm>

#include "planner/schedules/building.hpp"
#include "planner/schedules/entries.hpp"
#include "planner/schedules/two_way/dualpipe_rank.hpp"

namespace pipewright::planner {
namespace {

std::optional<std::string> refuse_dualpipe(const ScheduleRequest& request) {
  if (auto refused = refuse_unless_bidirectional("dualpipe", request)) return refused;
  const int p = request.ranks, m = request.micro_batches;
  if (m < 2 * p) {
    return "dualpipe needs at least 2p micro-batches, p in each direction: " + std::to_string(m) +
           " < " + std::to_string(2 * p) + "; use " + std::to_string(2 * p) + " micro-batches";
  }
  if (m % 2 == 0) return std::nullopt;
  return "dualpipe sends one half of the micro-batches each way, and " + std::to_string(m) +
         " is odd; use " + std::to_string(m - 1) + " or " + std::to_string(m + 1) +
         " micro-batches";
}

Placement dualpipe_placement(int p, int m) {
  std::vector<std::vector<RankId>> rank_of(static_cast<std::size_t>(p));
  for (int s = 0; s < p; ++s) {
    auto& row = rank_of[static_cast<std::size_t>(s)];
    row.assign(static_cast<std::size_t>(m), RankId(s));
    std::fill(row.begin() + m / 2, row.end(), RankId(p - 1 - s));
  }
  return Placement::explicit_micro_batches(std::move(rank_of), p);
}

Order make_dualpipe(const ScheduleRequest& request) {
  const int p = request.ranks, m = request.micro_batches;
  Order order = empty_order(request, 2 * static_cast<std::size_t>(m) + static_cast<std::size_t>(p));
  order.placement = dualpipe_placement(p, m);
  for (int r = 0; r < p; ++r) {
    const int place = std::min(r, p - 1 - r);  // as seen from the nearer end
    const bool first_half = r < p / 2;
    const DualPipeStream near_stream{place, first_half ? 0 : m / 2};
    const DualPipeStream far_stream{p - 1 - place, first_half ? m / 2 : 0};
    write_dualpipe_rank(place, p / 2, m / 2, near_stream, far_stream,
                        order.ranks[static_cast<std::size_t>(r)]);
  }
  return order;
}

}  // namespace

Schedule dualpipe_schedule() {
  Schedule entry;
  entry.name = "dualpipe";
  entry.traits.overlaps = true;
  entry.text.summary =
      "two replicas, one each way: forwards overlap with backwards, twice the weights";
  entry.text.constraint = "v = 1; p even; m even and >= 2p, both directions together";
  entry.text.bubble =
      "(p/2-1)(F&B + B - 3W) for F = I = W; (p/2-1)(F+2I-W) for F = I >= W, F&B = F+B";
  entry.text.memory = "p+1";
  entry.text.source = "DeepSeek-V3 (arXiv:2412.19437); deepseek-ai/DualPipe dualpipe.py";
  entry.traits.splits_backward = true;
  entry.layout = Layout::Bidirectional;
  entry.refusal = refuse_dualpipe;
  entry.make = make_dualpipe;
  return entry;
}

}  // namespace pipewright::planner
