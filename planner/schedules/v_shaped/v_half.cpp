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

struct VHalf {
  static constexpr std::string_view kName = "v-half";

  static constexpr BlockOffsets offsets(int rank, int p) {
    return {2 * rank, 3 * p - rank - 2, 3 * p + v_half_pause(p) + 2 * rank - 1,
            6 * p + v_half_pause(p) - rank - 2};
  }
};

}  // namespace

Schedule v_half_schedule() {
  Schedule entry = block_schedule<VHalf>();
  entry.aliases = {"VHalf", "ZBV-Half"};
  entry.text.summary = "half of 1F1B's activations, and less bubble: stages in a V, I and W apart";
  entry.text.bubble =
      "none known; F = I = W, m > p+1 > 3: (3p-7)F for even p, (3p-4)F for odd p (by running)";
  entry.text.memory = "min(2m, 2floor(p/2) + 2) chunks";
  return entry;
}

}  // namespace pipewright::planner
