#include "planner/schedules/v_shaped/pass_grid.hpp"

#include "core/base/error.hpp"
#include "planner/schedules/building.hpp"

namespace pipewright::planner {
namespace {

/// 1 GiB of slots, and as much again for the live counts.
constexpr std::int64_t kMostSlots = std::int64_t{1} << 28;

}  // namespace

std::optional<std::string> refuse_grid(std::string_view schedule, std::int64_t ranks,
                                       std::int64_t slots) {
  if (ranks * slots <= kMostSlots) return std::nullopt;
  return std::string(schedule) + " plans on a grid of " + std::to_string(ranks) + " ranks by " +
         std::to_string(slots) + " slots; at most " + std::to_string(kMostSlots) +
         " cells are possible, use fewer ranks or fewer micro-batches";
}

std::optional<std::string> refuse_other_than_two_chunks(std::string_view schedule,
                                                        const ScheduleRequest& request) {
  if (request.chunks == 2) return std::nullopt;
  return std::string(schedule) + " puts two chunks on each rank, in the shape of a V, not " +
         std::to_string(request.chunks) + "; use vpp 2";
}

PassGrid empty_grid(int ranks, int micro_batches, int slots, int backward_slots) {
  PassGrid grid;
  grid.ranks = ranks;
  grid.micro_batches = micro_batches;
  grid.slots = slots;
  grid.backward_slots = backward_slots;
  // An odd number of cache lines: the ranks' slots of one moment then lie in different sets.
  constexpr std::size_t kLine = 64 / sizeof(SlotContent);
  grid.stride = ((static_cast<std::size_t>(slots) / kLine + 1) | 1U) * kLine;
  grid.contents.resize(static_cast<std::size_t>(ranks) * grid.stride);
  grid.places.resize(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(micro_batches) *
                     kPassesOfABlock);
  return grid;
}

void repeat_block(PassGrid& grid, const std::vector<BlockOffsets>& block, int period) {
  for (int r = 0; r < grid.ranks; ++r) {
    SlotContent* const row = grid.row(r);
    const BlockOffsets& offsets = block[static_cast<std::size_t>(r)];
    for (int m = 0; m < grid.micro_batches; ++m) {
      for (int k = 0; k < kPassesOfABlock; ++k) {
        const Pass pass = static_cast<Pass>(k);
        const int slot = offsets[static_cast<std::size_t>(k)] + m * period;
        for (int t = slot; t <= slot + grid.tail_of(pass); ++t) {
          PIPEWRIGHT_ASSERT(t < grid.slots && row[t].is_free(), "a building block collides");
          row[t] = content(pass, m);
        }
        grid.places_of(pass, m)[r] = slot;
      }
    }
  }
}

}  // namespace pipewright::planner
