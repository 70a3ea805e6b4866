// The grid on which schedules of repeated building blocks are laid out: ranks by time slots, one
// pass a slot, V placement (stages r and 2p-1-r on rank r). Slots are units of time, not costs:
// what comes out of a grid is an order. Plain data; built and thrown away inside one call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/schedules/registry.hpp"

namespace pipewright::planner {

/// The passes of one micro-batch on one rank, in the order in which it meets them. It goes down the
/// ranks, turns, comes up; its gradient does the same.
enum class Pass : std::uint8_t {
  ForwardDown,   // F of stage r
  ForwardUp,     // F of stage 2p-1-r
  BackwardDown,  // backward of stage 2p-1-r
  BackwardUp,    // backward of stage r
  Weight,        // W of either stage; only where W has slots of its own
};
inline constexpr int kPassesOfABlock = 4;  // those before Weight: they have places and inputs

constexpr bool is_forward(Pass pass) { return pass < Pass::BackwardDown; }
constexpr bool goes_down(Pass pass) {
  return pass == Pass::ForwardDown || pass == Pass::BackwardDown;
}
constexpr int stage_of(Pass pass, int rank, int ranks) {
  return pass == Pass::ForwardDown || pass == Pass::BackwardUp ? rank : 2 * ranks - 1 - rank;
}

/// A slot's content; Free is all zeros. `micro_batch` of a Weight counts the W's of the rank.
struct SlotContent {
  std::uint32_t bits = 0;

  constexpr bool is_free() const { return bits == 0; }
  constexpr Pass pass() const { return static_cast<Pass>((bits & 7U) - 1U); }
  constexpr int micro_batch() const { return static_cast<int>(bits >> 3U); }
};
inline constexpr SlotContent kFree{};
constexpr SlotContent content(Pass pass, int micro_batch) {
  return {(static_cast<std::uint32_t>(micro_batch) << 3U) |
          (static_cast<std::uint32_t>(pass) + 1U)};
}

/// One rank's places in the first block: the slot of each of its four passes.
using BlockOffsets = std::array<int, kPassesOfABlock>;

struct PassGrid {
  int ranks = 0, micro_batches = 0, slots = 0;
  int backward_slots = 1;  // 2: I and W as one pass
  std::size_t stride = 0;  // from one rank's slots to the next rank's
  std::vector<SlotContent> contents;
  std::vector<std::int32_t> places;  // first slot of a pass: [micro-batch][pass][rank]

  SlotContent* row(int rank) { return contents.data() + static_cast<std::size_t>(rank) * stride; }
  const SlotContent* row(int rank) const {
    return contents.data() + static_cast<std::size_t>(rank) * stride;
  }
  /// By rank: the slots of this pass.
  std::int32_t* places_of(Pass pass, int micro_batch) {
    return places.data() + (static_cast<std::size_t>(micro_batch) * kPassesOfABlock +
                            static_cast<std::size_t>(pass)) *
                               static_cast<std::size_t>(ranks);
  }
  const std::int32_t* places_of(Pass pass, int micro_batch) const {
    return const_cast<PassGrid*>(this)->places_of(pass, micro_batch);
  }
  /// The last slot that a pass fills, counted from its first.
  int tail_of(Pass pass) const { return is_forward(pass) ? 0 : backward_slots - 1; }
};

/// Why such a grid would be too large to hold; nullopt: it is not.
std::optional<std::string> refuse_grid(std::string_view schedule, std::int64_t ranks,
                                       std::int64_t slots);
/// V placement and two chunks a rank, for schedules that have no others.
std::optional<std::string> refuse_other_than_two_chunks(std::string_view schedule,
                                                        const ScheduleRequest& request);

/// A grid with all slots free.
PassGrid empty_grid(int ranks, int micro_batches, int slots, int backward_slots);
/// Puts micro-batch k's passes k * period slots after the block's. The block must not collide with
/// its repetitions (a bug of ours if it does).
void repeat_block(PassGrid& grid, const std::vector<BlockOffsets>& block, int period);
/// How many activations a rank holds after each slot, if delta(const SlotContent*) says what a slot
/// adds. Returns the most that any rank holds; `live` is laid out as `contents`.
template <class Delta>
int count_live(const PassGrid& grid, std::vector<std::int32_t>& live, Delta delta) {
  live.assign(grid.contents.size(), 0);
  int most = 0;
  for (std::size_t begin = 0; begin < live.size(); begin += grid.stride) {
    int now = 0;
    for (std::size_t t = begin; t < begin + grid.stride; ++t) {
      now += delta(&grid.contents[t]);
      live[t] = now;
      if (now > most) most = now;
    }
  }
  return most;
}

/// The last slot in which something that the pass needs is computed, or the same pass of the
/// micro-batch before it; -1: nothing.
inline int last_input(const PassGrid& grid, Pass pass, int micro_batch, int rank) {
  const std::int32_t* const here = grid.places_of(pass, micro_batch) + rank;
  const int tail = grid.tail_of(pass);
  int last = -1;
  if (goes_down(pass) && rank > 0) last = here[-1] + tail;
  if (!goes_down(pass) && rank + 1 < grid.ranks) last = here[1] + tail;
  if (pass != Pass::ForwardDown) {
    const Pass before = static_cast<Pass>(static_cast<int>(pass) - 1);
    const int end = here[-grid.ranks] + grid.tail_of(before);
    if (end > last) last = end;
  }
  if (micro_batch > 0) {
    const int end = here[-kPassesOfABlock * grid.ranks] + tail;
    if (end > last) last = end;
  }
  return last;
}

/// The first free slot from `from` on, or `end`.
inline int first_free(const SlotContent* row, int from, int end) {
  while (from < end && !row[from].is_free()) ++from;
  return from;
}

// Live counts are read and changed over stretches that are as long as the pipeline is deep. Fixed
// pieces of them become vector instructions, also at -O2.
inline constexpr int kPiece = 16;

/// How early a forward that stands at `slot` may go without its rank holding more than `limit`:
/// moved to s it adds one activation to the slots from s to slot - 1. Not before `least`.
inline int earliest_with_room(const std::int32_t* live, int slot, int least, int limit) {
  for (; slot - kPiece >= least; slot -= kPiece) {
    const std::int32_t* const piece = live + slot - kPiece;
    std::int32_t full = 0;
    for (int k = 0; k < kPiece; ++k) full |= limit - 1 - piece[k];  // negative: no room
    if (full < 0) break;
  }
  while (slot > least && live[slot - 1] < limit) --slot;
  return slot;
}

/// Adds to the counts of the slots from `begin` to `end` - 1.
inline void add_to_live(std::int32_t* live, int begin, int end, int added) {
  for (; begin + kPiece <= end; begin += kPiece) {
    for (int k = 0; k < kPiece; ++k) live[begin + k] += added;
  }
  for (; begin < end; ++begin) live[begin] += added;
}

}  // namespace pipewright::planner
