#include "planner/schedules/v_shaped/building_block.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "planner/schedules/building.hpp"

namespace pipewright::planner {
namespace {

/// W's that come after the last pass of a rank: a period has at most two backwards and at least two
/// free slots, so no more are ever waiting.
constexpr int kSlotsForLastWeights = 2;

/// Puts a W into each free slot of a rank while one is waiting; what does not fit is left out.
/// Returns how many that are.
int place_weights(PassGrid& grid) {
  int left_out = 0;
  for (int r = 0; r < grid.ranks; ++r) {
    SlotContent* const row = grid.row(r);
    int waiting = 0, placed = 0;
    for (int t = 0; t < grid.slots; ++t) {
      if (row[t].is_free()) {
        if (waiting == 0) continue;
        row[t] = content(Pass::Weight, placed++);
        --waiting;
      } else if (!is_forward(row[t].pass())) {
        ++waiting;
      }
    }
    left_out += waiting;
  }
  return left_out;
}

/// Starts every pass as soon as its inputs and the pass before it on its rank allow, in the given
/// order of each rank; W's take their slot and are dropped. No pass gets later, so this works in
/// place, slot after slot.
void squeeze(PassGrid& grid) {
  std::vector<int> next(static_cast<std::size_t>(grid.ranks), 0);
  for (int t = 0; t < grid.slots; ++t) {
    for (int r = 0; r < grid.ranks; ++r) {
      SlotContent* const row = grid.row(r);
      const SlotContent what = row[t];
      if (what.is_free()) continue;
      row[t] = kFree;
      int& slot = next[static_cast<std::size_t>(r)];
      const Pass pass = what.pass();
      if (pass != Pass::Weight) {
        slot = std::max(slot, last_input(grid, pass, what.micro_batch(), r) + 1);
        row[slot] = what;
        grid.places_of(pass, what.micro_batch())[r] = slot;
      }
      ++slot;
    }
  }
}

/// The part of the step that a slot belongs to, as the reorderings see it: from the first gradient
/// that is back at stage 0 until the last forward has begun, the block repeats and is left alone.
/// With few micro-batches the cool-down is never seen.
enum class BlockPart : std::uint8_t { WarmUp, Steady, CoolDown };

/// Calls move(part, rank, slot, content) for each pass, slot after slot.
template <class Move>
void reorder(const PassGrid& grid, Move move) {
  BlockPart part = BlockPart::WarmUp;
  for (int t = 0; t < grid.slots; ++t) {
    for (int r = 0; r < grid.ranks; ++r) {
      const SlotContent what = grid.row(r)[t];
      if (what.is_free()) continue;
      if (part == BlockPart::WarmUp && r == 0 && what.pass() == Pass::BackwardUp)
        part = BlockPart::Steady;
      const BlockPart now = part;
      if (part == BlockPart::Steady && what.pass() == Pass::ForwardDown &&
          what.micro_batch() == grid.micro_batches - 1) {
        part = BlockPart::CoolDown;
      }
      move(now, r, t, what);
    }
  }
}

void move_pass(PassGrid& grid, int rank, int from, int to) {
  SlotContent* const row = grid.row(rank);
  const SlotContent what = row[from];
  row[from] = kFree;
  row[to] = what;
  if (what.pass() != Pass::Weight) grid.places_of(what.pass(), what.micro_batch())[rank] = to;
}

/// What a pass adds to its rank's live activations.
constexpr int added_by(Pass pass) {
  if (is_forward(pass)) return 1;
  return pass == Pass::Weight ? -1 : 0;
}

/// Inserts into a sorted list; new values are nearly always the largest.
void insert_sorted(std::vector<int>& sorted, int value) {
  sorted.push_back(value);
  for (std::size_t k = sorted.size() - 1; k > 0 && sorted[k - 1] > value; --k) {
    std::swap(sorted[k - 1], sorted[k]);
  }
}

/// Moves each pass of warm-up and cool-down, W's included, to the first free slot after its inputs
/// in which no rank holds more than some rank did before. The k-th W of a rank follows its k-th
/// backward, whatever chunks they belong to.
void reorder_with_weights(PassGrid& grid) {
  std::vector<std::int32_t> live;
  const int limit = count_live(grid, live, [](const SlotContent* slot) {
    return slot->is_free() ? 0 : added_by(slot->pass());
  });
  std::vector<std::vector<int>> backwards(static_cast<std::size_t>(grid.ranks));
  for (auto& slots : backwards) slots.reserve(2 * static_cast<std::size_t>(grid.micro_batches));
  std::vector<int> last_weight(static_cast<std::size_t>(grid.ranks), -1);

  reorder(grid, [&](BlockPart part, int r, int from, SlotContent what) {
    const Pass pass = what.pass();
    auto& backward_slots = backwards[static_cast<std::size_t>(r)];
    int& weight_before = last_weight[static_cast<std::size_t>(r)];
    int to = from;
    if (part != BlockPart::Steady) {
      std::int32_t* const held = live.data() + static_cast<std::size_t>(r) * grid.stride;
      int least = pass == Pass::Weight
                      ? std::max(weight_before,
                                 backward_slots[static_cast<std::size_t>(what.micro_batch())])
                      : last_input(grid, pass, what.micro_batch(), r);
      ++least;
      if (is_forward(pass)) least = earliest_with_room(held, from, least, limit);
      to = first_free(grid.row(r), least, from);
      if (to < from) move_pass(grid, r, from, to);
      if (added_by(pass) != 0) add_to_live(held, to, from, added_by(pass));
    }
    if (pass == Pass::Weight) weight_before = to;
    if (!is_forward(pass) && pass != Pass::Weight) insert_sorted(backward_slots, to);
  });
}

/// What a rank holds and how many W's wait after a slot, if a W fills each free slot it can.
struct HeldSlots {
  int live = 0, weights_waiting = 0;
  bool operator==(const HeldSlots&) const = default;
};

HeldSlots after(HeldSlots held, SlotContent what) {
  if (what.is_free()) {
    const int done = held.weights_waiting > 0 ? 1 : 0;
    return {held.live - done, held.weights_waiting - done};
  }
  return is_forward(what.pass()) ? HeldSlots{held.live + 1, held.weights_waiting}
                                 : HeldSlots{held.live, held.weights_waiting + 1};
}

/// Moves a pass if no slot of its rank then holds more than `limit`. Slots before `to` stay as they
/// are; after `from` the counts are soon the old ones again.
bool move_within(PassGrid& grid, std::vector<HeldSlots>& row_held, std::vector<HeldSlots>& changed,
                 int rank, int from, int to, int limit) {
  move_pass(grid, rank, from, to);
  const SlotContent* const row = grid.row(rank);
  HeldSlots held = to > 0 ? row_held[static_cast<std::size_t>(to) - 1] : HeldSlots{};
  changed.clear();
  for (int t = to; t < grid.slots; ++t) {
    held = after(held, row[t]);
    if (held.live > limit) {
      move_pass(grid, rank, to, from);
      return false;
    }
    if (t >= from && held == row_held[static_cast<std::size_t>(t)]) break;
    changed.push_back(held);
  }
  std::copy(changed.begin(), changed.end(), row_held.begin() + to);
  return true;
}

/// Moves each pass of the cool-down to the first free slot after its inputs in which its rank, W's
/// filling the free slots, holds no more than some rank did before.
void reorder_without_weights(PassGrid& grid) {
  std::vector<std::vector<HeldSlots>> held(static_cast<std::size_t>(grid.ranks));
  int limit = 0;
  for (int r = 0; r < grid.ranks; ++r) {
    auto& row_held = held[static_cast<std::size_t>(r)];
    row_held.reserve(static_cast<std::size_t>(grid.slots));
    HeldSlots now;
    for (int t = 0; t < grid.slots; ++t) {
      now = after(now, grid.row(r)[t]);
      limit = std::max(limit, now.live);
      row_held.push_back(now);
    }
  }
  std::vector<HeldSlots> changed;
  reorder(grid, [&](BlockPart part, int r, int from, SlotContent what) {
    if (part != BlockPart::CoolDown) return;
    const SlotContent* const row = grid.row(r);
    int to = last_input(grid, what.pass(), what.micro_batch(), r) + 1;
    for (to = first_free(row, to, from); to < from; to = first_free(row, to + 1, from)) {
      if (move_within(grid, held[static_cast<std::size_t>(r)], changed, r, from, to, limit)) break;
    }
  });
}

/// Writes one rank: its passes, and a W in each free slot while one is waiting, those of stage
/// 2p-1-r first.
void write_block_rank(const PassGrid& grid, int rank, std::vector<Cell>& cells) {
  const SlotContent* const row = grid.row(rank);
  const int late_stage = 2 * grid.ranks - 1 - rank;
  int waiting_late = 0, waiting_early = 0, late = 0, early = 0;
  const auto write_weight = [&] {
    if (waiting_late > 0) {
      append(cells, ActionKind::W, late_stage, late++);
      --waiting_late;
    } else if (waiting_early > 0) {
      append(cells, ActionKind::W, rank, early++);
      --waiting_early;
    }
  };
  for (int t = 0; t < grid.slots; ++t) {
    if (row[t].is_free()) {
      write_weight();
      continue;
    }
    const Pass pass = row[t].pass();
    append(cells, is_forward(pass) ? ActionKind::F : ActionKind::I,
           stage_of(pass, rank, grid.ranks), row[t].micro_batch());
    if (pass == Pass::BackwardDown) ++waiting_late;
    if (pass == Pass::BackwardUp) ++waiting_early;
  }
  while (waiting_late + waiting_early > 0) write_weight();
}

/// Slots that the repeated block and its W's take.
std::int64_t slots_of_block(int micro_batches, std::int64_t last_offset) {
  return last_offset + 1 + std::int64_t{kBlockPeriod} * (micro_batches - 1) + kSlotsForLastWeights;
}

}  // namespace

std::optional<std::string> refuse_block(std::string_view schedule, const ScheduleRequest& request,
                                        BlockRule offsets) {
  if (auto refused = refuse_other_than_two_chunks(schedule, request)) return refused;
  const int last = offsets(0, request.ranks).back();
  return refuse_grid(schedule, request.ranks, slots_of_block(request.micro_batches, last));
}

Order order_of_block(const ScheduleRequest& request, BlockRule offsets) {
  std::vector<BlockOffsets> block;
  for (int r = 0; r < request.ranks; ++r) block.push_back(offsets(r, request.ranks));
  int last = 0;
  for (const BlockOffsets& places : block) last = std::max(last, places.back());
  const int m = request.micro_batches;
  PassGrid grid = empty_grid(request.ranks, m, static_cast<int>(slots_of_block(m, last)), 1);
  repeat_block(grid, block, kBlockPeriod);
  const int left_out = place_weights(grid);
  PIPEWRIGHT_ASSERT(left_out == 0, "a building block leaves no room for its W's");
  reorder_with_weights(grid);
  squeeze(grid);
  reorder_without_weights(grid);
  place_weights(grid);
  squeeze(grid);

  Order order = empty_order(request, kBlockPeriod * static_cast<std::size_t>(m));
  order.placement = Placement::v_shape(request.ranks);
  for (int r = 0; r < request.ranks; ++r) {
    write_block_rank(grid, r, order.ranks[static_cast<std::size_t>(r)]);
  }
  return order;
}

}  // namespace pipewright::planner
