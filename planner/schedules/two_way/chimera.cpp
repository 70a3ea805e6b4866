// Chimera with two directions: two replicas of the model on the same ranks, one each way, and no
// idle slot between the two where F = B. Micro-batches go in units of p/2, in turn down (stage s on
// rank s) and up (stage s on rank p-1-s). The rule is the paper's (arXiv:2107.06925, section 3.1):
// in slots of one F or one B, a direction starts a micro-batch every second slot, each goes on by
// one stage a slot, turns at the end and comes back; the next p micro-batches follow 2p slots
// later. Every slot of a rank is then taken by exactly one action, so that a slot's action follows
// from its number alone. The authors' generator stops early for 4p micro-batches at p = 6, 8 and
// 16; the rule does not.
#include "planner/schedules/building.hpp"
#include "planner/schedules/entries.hpp"

namespace pipewright::planner {
namespace {

std::optional<std::string> refuse_chimera(const ScheduleRequest& request) {
  if (auto refused = refuse_unless_bidirectional("chimera", request)) return refused;
  const int p = request.ranks, m = request.micro_batches;
  if (m % p == 0) return std::nullopt;
  const int less = m / p * p;
  return "chimera takes its micro-batches p at a time, half of them each way, and " +
         std::to_string(p) + " does not divide " + std::to_string(m) + "; use " +
         (less > 0 ? std::to_string(less) + " or " : "") + std::to_string(less + p) +
         " micro-batches";
}

Placement chimera_placement(int p, int m) {
  std::vector<std::vector<RankId>> rank_of(static_cast<std::size_t>(p));
  for (int s = 0; s < p; ++s) {
    auto& row = rank_of[static_cast<std::size_t>(s)];
    row.reserve(static_cast<std::size_t>(m));
    for (int k = 0; k < m; ++k) row.emplace_back(k % p < p / 2 ? s : p - 1 - s);
  }
  return Placement::explicit_micro_batches(std::move(rank_of), p);
}

/// What a rank does in a slot: the slot's parity says whether it is a forward of the one direction
/// and a backward of the other, or the other way round; half a round of p slots of this parity
/// belongs to each.
void write_slot(int p, int m, int rank, int slot, std::vector<Cell>& cells) {
  const bool down_forward = (slot - rank) % 2 == 0;
  const int stage = down_forward ? rank : p - 1 - rank;  // of the forward
  const int since = slot - stage;  // since the forward of the first micro-batch
  const int turn = since / 2, round = turn / p, place = turn % p;
  if (since < 0 || round >= m / p) {
    append_idle(cells, 1);
    return;
  }
  const bool forward = place < p / 2;
  const bool down = forward == down_forward;
  const int first = round * p + (down ? 0 : p / 2);
  append(cells, forward ? ActionKind::F : ActionKind::B, forward ? stage : p - 1 - stage,
         first + place % (p / 2));
}

Order make_chimera(const ScheduleRequest& request) {
  const int p = request.ranks, m = request.micro_batches;
  const int slots = 2 * m + p - 2;
  Order order = empty_order(request, static_cast<std::size_t>(slots));
  order.placement = chimera_placement(p, m);
  for (int r = 0; r < p; ++r) {
    auto& cells = order.ranks[static_cast<std::size_t>(r)];
    for (int slot = 0; slot < slots; ++slot) write_slot(p, m, r, slot, cells);
  }
  return order;
}

}  // namespace

Schedule chimera_schedule() {
  Schedule entry;
  entry.name = "chimera";
  entry.text.summary = "two replicas, one each way: half of 1F1B's bubble, twice the weights";
  entry.text.constraint = "v = 1; p even; m a multiple of p, both directions together";
  entry.text.bubble = "(p-2)F for F = B: 2m+p-2 slots";
  entry.text.memory = "p/2 + 1 + min(r, p-1-r)";
  entry.text.source = "Chimera (arXiv:2107.06925), two pipelines";
  entry.layout = Layout::Bidirectional;
  entry.refusal = refuse_chimera;
  entry.make = make_chimera;
  return entry;
}

}  // namespace pipewright::planner
