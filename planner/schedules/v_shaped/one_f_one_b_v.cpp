// 1F1B-V: 1F1B's whole backward on the V placement, with two thirds of its activations. A building
// block of six slots (two forwards, two backwards of two slots each) is repeated; then every pass
// goes as early as its inputs and the memory of the steady state allow.
#include <algorithm>

#include "planner/schedules/building.hpp"
#include "planner/schedules/entries.hpp"
#include "planner/schedules/v_shaped/pass_grid.hpp"

namespace pipewright::planner {
namespace {

constexpr int kPeriod = 6;  // two forwards, two backwards of two slots
/// A period stays free before the first block: what moves earlier may use it.
constexpr int kFreeInFront = kPeriod;

/// One rank after the other, a slot a forward and two a backward. A pass whose slots are taken (mod
/// 6) on its rank waits three slots: on the way back that is every third rank, counted so that the
/// forwards are met, and at the first turn where 3 divides p.
std::vector<BlockOffsets> block_of(int p) {
  std::vector<BlockOffsets> block(static_cast<std::size_t>(p));
  int slot = kFreeInFront + 1;
  const auto offset = [&](Pass pass, int rank) -> int& {
    return block[static_cast<std::size_t>(rank)][static_cast<std::size_t>(pass)];
  };
  for (int r = 0; r < p; ++r) offset(Pass::ForwardDown, r) = slot++;
  for (int r = p; r-- > 0;) offset(Pass::ForwardUp, r) = slot++;
  if (p % 3 == 0) slot += 3;
  int since_wait = (2 * p + 1) % 3;
  const auto put_backward = [&](Pass pass, int rank) {
    offset(pass, rank) = slot;
    slot += 2;
    if (++since_wait < 3) return;
    since_wait = 0;
    slot += 3;
  };
  for (int r = 0; r < p; ++r) put_backward(Pass::BackwardDown, r);
  for (int r = p; r-- > 0;) put_backward(Pass::BackwardUp, r);
  return block;
}

std::int64_t slots_of(std::int64_t ranks, std::int64_t micro_batches) {
  // 2p forwards, 2p backwards of two slots, and less than p + 1 waits of three.
  return kFreeInFront + 1 + 6 * ranks + 3 * (ranks + 1) + kPeriod * micro_batches;
}

/// What the slot adds to the rank's live activations; a backward gives its own back in its second
/// slot. (No backward stands in a rank's first slot.)
int added_by_slot(const SlotContent* slot) {
  if (slot->is_free()) return 0;
  if (is_forward(slot->pass())) return 1;
  return slot[-1].bits == slot->bits ? -1 : 0;
}

/// Moves each pass to the first free slots after its inputs in which its rank holds no more than
/// some rank does in the repeated block.
void move_earlier(PassGrid& grid) {
  std::vector<std::int32_t> live;
  const int limit = count_live(grid, live, added_by_slot);
  for (int t = 0; t < grid.slots; ++t) {
    for (int r = 0; r < grid.ranks; ++r) {
      SlotContent* const row = grid.row(r);
      const SlotContent what = row[t];
      if (what.is_free() || (t > 0 && row[t - 1].bits == what.bits)) continue;
      std::int32_t* const held = live.data() + static_cast<std::size_t>(r) * grid.stride;
      const Pass pass = what.pass();
      const int tail = grid.tail_of(pass);
      int least = last_input(grid, pass, what.micro_batch(), r) + 1;
      if (is_forward(pass)) least = earliest_with_room(held, t, least, limit);
      int to = first_free(row, least, t);
      // A backward looks for two free slots beside each other, its own not among them.
      while (tail > 0 && to < t && !row[to + 1].is_free()) to = first_free(row, to + 1, t);
      if (to == t) continue;
      for (int k = 0; k <= tail; ++k) {
        row[t + k] = kFree;
        row[to + k] = what;
      }
      grid.places_of(pass, what.micro_batch())[r] = to;
      add_to_live(held, to + tail, t + tail, is_forward(pass) ? 1 : -1);
    }
  }
}

void write_v_rank(const PassGrid& grid, int rank, std::vector<Cell>& cells) {
  const SlotContent* const row = grid.row(rank);
  for (int t = 0; t < grid.slots; ++t) {
    if (row[t].is_free()) continue;
    const Pass pass = row[t].pass();
    append(cells, is_forward(pass) ? ActionKind::F : ActionKind::B,
           stage_of(pass, rank, grid.ranks), row[t].micro_batch());
    t += grid.tail_of(pass);
  }
}

std::optional<std::string> refuse_one_f_one_b_v(const ScheduleRequest& request) {
  if (auto refused = refuse_other_than_two_chunks("1f1b-v", request)) return refused;
  return refuse_grid("1f1b-v", request.ranks, slots_of(request.ranks, request.micro_batches));
}

Order make_one_f_one_b_v(const ScheduleRequest& request) {
  const int p = request.ranks, m = request.micro_batches;
  PassGrid grid = empty_grid(p, m, static_cast<int>(slots_of(p, m)), 2);
  repeat_block(grid, block_of(p), kPeriod);
  move_earlier(grid);
  Order order = empty_order(request, 4 * static_cast<std::size_t>(m));
  order.placement = Placement::v_shape(p);
  for (int r = 0; r < p; ++r) write_v_rank(grid, r, order.ranks[static_cast<std::size_t>(r)]);
  return order;
}

}  // namespace

Schedule one_f_one_b_v_schedule() {
  Schedule entry;
  entry.name = "1f1b-v";
  entry.aliases = {"V-1F1B", "V1F1B"};
  entry.text.summary = "1F1B with stages in a V: two thirds of its activations, and less bubble";
  entry.text.constraint = "v = 2; any p, m";
  entry.text.bubble = "none known; F = I = W, m > p, p mod 3 = 1: 5(p-1)F (by running)";
  entry.text.memory = "min(2m, 2ceil((2p+1)/3)) chunks";
  entry.text.source =
      "Pipeline Parallelism with Controllable Memory (arXiv:2405.15362), v1f1b.py of "
      "sail-sg/zero-bubble-pipeline-parallelism";
  entry.default_chunks = 2;
  entry.layout = Layout::V;
  entry.refusal = refuse_one_f_one_b_v;
  entry.make = make_one_f_one_b_v;
  return entry;
}

}  // namespace pipewright::planner
