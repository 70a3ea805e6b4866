// V-Half: the V placement with half of 1F1B's activations. Each rank takes a forward two slots
// after the rank above it on the way down and one on the way up, so a micro-batch lives about 3p
// slots.
#include "planner/schedules/entries.hpp"
#include "planner/schedules/v_shaped/building_block.hpp"

namespace pipewright::planner {
namespace {

/// For even p the two backwards would fall into the forwards' slots (mod 6) without a v_half_pause
/// of three slots at the first turn.
constexpr int v_half_pause(int ranks) { return ranks % 2 == 0 ? 3 : 0; }

constexpr BlockOffsets v_half_offsets(int rank, int p) {
  return {2 * rank, 3 * p - rank - 2, 3 * p + v_half_pause(p) + 2 * rank - 1,
          6 * p + v_half_pause(p) - rank - 2};
}

std::optional<std::string> refuse_v_half(const ScheduleRequest& request) {
  return refuse_block("v-half", request, v_half_offsets);
}

Order make_v_half(const ScheduleRequest& request) {
  return order_of_block(request, v_half_offsets);
}

}  // namespace

Schedule v_half_schedule() {
  Schedule entry;
  entry.name = "v-half";
  entry.aliases = {"VHalf", "ZBV-Half"};
  entry.summary = "half of 1F1B's activations, and less bubble: stages in a V, I and W apart";
  entry.constraint = "v = 2; any p, m";
  entry.bubble =
      "none known; F = I = W, m > p+1 > 3: (3p-7)F for even p, (3p-4)F for odd p (by running)";
  entry.memory = "min(2m, 2floor(p/2) + 2) chunks";
  entry.source =
      "Pipeline Parallelism with Controllable Memory (arXiv:2405.15362), zbv_greedy.py of "
      "sail-sg/zero-bubble-pipeline-parallelism";
  entry.splits_backward = true;
  entry.default_chunks = 2;
  entry.layout = Layout::V;
  entry.refusal = refuse_v_half;
  entry.make = make_v_half;
  return entry;
}

}  // namespace pipewright::planner
