// V-Min: the V placement with a third of 1F1B's activations. Every pass follows its input at once,
// so a micro-batch lives about 2p slots; for unequal costs the ranks wait for each other.
#include "planner/schedules/entries.hpp"
#include "planner/schedules/v_shaped/building_block.hpp"

namespace pipewright::planner {
namespace {

/// Where 3 divides p, backwards would fall into the forwards' slots (mod 6) without a v_min_pause
/// of two slots at the first turn.
constexpr int v_min_pause(int ranks) { return ranks % 3 == 0 ? 2 : 0; }

struct VMin {
  static constexpr std::string_view kName = "v-min";

  static constexpr BlockOffsets offsets(int rank, int p) {
    return {rank, 2 * p - rank - 1, 2 * p + v_min_pause(p) + rank,
            4 * p + v_min_pause(p) - rank - 1};
  }
};

}  // namespace

Schedule v_min_schedule() {
  Schedule entry = block_schedule<VMin>();
  entry.aliases = {"VMin", "ZBV-Min"};
  entry.text.summary = "a third of 1F1B's activations: stages in a V, I and W apart";
  entry.text.bubble =
      "none known; F = I = W, m > p > 1: (4p-5)F, or (4p-7)F where 3 divides p (by running)";
  entry.text.memory = "min(2m, 2floor((p+4)/3)) chunks";
  return entry;
}

}  // namespace pipewright::planner
