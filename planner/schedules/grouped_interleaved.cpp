// Grouped interleaved 1F1B: chunks in a loop as in interleaved 1F1B, but groups of G < p
// micro-batches. Forwards and backwards follow each other from rank to rank without a wait, so half
// a loop fits into a group and the activations of the other half are never held.
#include <algorithm>

#include "planner/base/number_text.hpp"
#include "planner/schedules/building.hpp"
#include "planner/schedules/entries.hpp"

namespace pipewright::planner {
namespace {

int least_group(int ranks) { return (ranks + 1) / 2; }

int grouped_group_of(const ScheduleRequest& request) {
  const auto found = request.parameters.find("group");
  if (found == request.parameters.end()) return least_group(request.ranks);
  return positive_integer(found->second).value_or(0);
}

/// A slot of the repeated block: what is done there, and how many blocks after the first slot of
/// its own block it lies.
struct BlockSlot {
  ActionKind kind = ActionKind::F;
  int chunk = 0, place_in_group = 0, blocks_behind = 0;
};

/// One rank's block, by slot: a forward every three slots, each followed by an I and a W. The
/// source of the places: get_optimal_building_block() of group_interleaved_1f1b.py.
std::vector<BlockSlot> block_of(const ScheduleRequest& request, int group, int rank) {
  const int p = request.ranks, v = request.chunks, length = 3 * group * v;
  std::vector<BlockSlot> block(static_cast<std::size_t>(length));
  const auto put = [&](ActionKind kind, int chunk, int place, int slot) {
    block[static_cast<std::size_t>(slot % length)] = {kind, chunk, place, slot / length};
  };
  // The last chunk's first forward goes down the ranks below in single slots; its gradient comes
  // back in steps of two, for an I and a W on each rank.
  const int first_backward = 3 * group * (v - 1) + rank + 3 * (p - 1 - rank) + 1;
  for (int c = 0; c < v; ++c) {
    for (int g = 0; g < group; ++g) {
      const int since_start = 3 * (c * group + g);
      put(ActionKind::F, c, g, since_start + rank);
      put(ActionKind::I, v - 1 - c, g, first_backward + since_start);
      put(ActionKind::W, v - 1 - c, g, first_backward + since_start + 1);
    }
  }
  return block;
}

/// The rank's list is the repeated block read slot after slot, without what lies before the first
/// or after the last micro-batch.
void write_grouped_rank(const ScheduleRequest& request, int group, int rank,
                        std::vector<Cell>& cells) {
  const std::vector<BlockSlot> block = block_of(request, group, rank);
  const int m = request.micro_batches, groups = (m + group - 1) / group;
  int most_behind = 0;
  for (const BlockSlot& slot : block) most_behind = std::max(most_behind, slot.blocks_behind);
  for (int k = 0; k < groups + most_behind; ++k) {
    for (const BlockSlot& slot : block) {
      const int of = k - slot.blocks_behind;
      if (of < 0 || of >= groups) continue;
      const int micro_batch = of * group + slot.place_in_group;
      if (micro_batch >= m) continue;
      append(cells, slot.kind, slot.chunk * request.ranks + rank, micro_batch);
    }
  }
}

std::optional<std::string> refuse_grouped_interleaved(const ScheduleRequest& request) {
  const int group = grouped_group_of(request), least = least_group(request.ranks);
  if (group >= least && group <= request.ranks) return std::nullopt;
  return "the parameter group of grouped-interleaved is a number of micro-batches from " +
         std::to_string(least) + " (half of p, rounded up) to " + std::to_string(request.ranks) +
         " (p), not \"" + request.parameters.at("group") + "\"";
}

Order make_grouped_interleaved(const ScheduleRequest& request) {
  const auto total =
      static_cast<std::size_t>(request.micro_batches) * static_cast<std::size_t>(request.chunks);
  Order order = empty_order(request, 3 * total);
  for (int r = 0; r < request.ranks; ++r) {
    write_grouped_rank(request, grouped_group_of(request), r,
                       order.ranks[static_cast<std::size_t>(r)]);
  }
  return order;
}

}  // namespace

Schedule grouped_interleaved_schedule() {
  Schedule entry;
  entry.name = "grouped-interleaved";
  entry.aliases = {"GIS"};
  entry.text.summary = "interleaved 1F1B in groups of p/2 micro-batches: half of its activations";
  entry.text.constraint =
      "any p, m, v; the parameter group (G): ceil(p/2) <= G <= p, default ceil(p/2)";
  entry.text.bubble =
      "none known; F = I = W, v = 2, even p, G = p/2 divides m: (5p/2-2)F (by running)";
  entry.text.memory = "(v-1)min(m,G) + min(m,p-r) chunks";
  entry.text.source =
      "PipeOffload (arXiv:2503.01328), group_interleaved_1f1b.py of "
      "sail-sg/zero-bubble-pipeline-parallelism";
  entry.parameters = {"group"};
  entry.traits.splits_backward = true;
  entry.default_chunks = 2;
  entry.refusal = refuse_grouped_interleaved;
  entry.make = make_grouped_interleaved;
  return entry;
}

}  // namespace pipewright::planner
