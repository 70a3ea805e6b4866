// V-Half: the V placement with half of 1F1B's activations. Each rank takes a forward two slots
// after the rank above it on the way down and one on the way up, so a micro-batch lives about 3p
// slots.
#include "planner/schedules/building_block.hpp"
#include "planner/schedules/entries.hpp"

namespace pipewright::planner {
namespace {

/// For even p the two backwards would fall into the forwards' slots (mod 6) without a pause of
/// three slots at the first turn.
constexpr int pause(int ranks) { return ranks % 2 == 0 ? 3 : 0; }

constexpr BlockOffsets offsets(int rank, int p) {
  return {2 * rank, 3 * p - rank - 2, 3 * p + pause(p) + 2 * rank - 1, 6 * p + pause(p) - rank - 2};
}

std::optional<std::string> refusal(const ScheduleRequest& request) {
  return refuse_block("v-half", request, offsets);
}

Order make(const ScheduleRequest& request) { return order_of_block(request, offsets); }

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
  entry.refusal = refusal;
  entry.make = make;
  return entry;
}

}  // namespace pipewright::planner
