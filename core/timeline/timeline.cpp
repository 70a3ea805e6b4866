#include "core/timeline/timeline.hpp"

#include <algorithm>
#include <utility>

#include "core/order/stages_by_rank.hpp"
#include "core/timeline/live_memory.hpp"
#include "core/timeline/ratios.hpp"

namespace pipewright {

std::vector<RankFigures> peaks_of(const Program& program, const CostTable& costs) {
  std::vector<RankFigures> ranks(static_cast<std::size_t>(program.ranks()));
  const bool forward_only = is_forward_only(program);
  const auto stages = stages_by_rank(program.placement, program.micro_batches);
  for (int r = 0; r < program.ranks(); ++r) {
    LiveMemory live(program, costs, RankId(r), stages[static_cast<std::size_t>(r)], forward_only);
    for (std::size_t i = program.rank_code(RankId(r)).size(); i > 0; --i) live.pass();
    ranks[static_cast<std::size_t>(r)].peak_activations = live.peak_activations();
    ranks[static_cast<std::size_t>(r)].peak_bytes = live.peak_bytes();
  }
  return ranks;
}

Figures figures_of(const Program& program, const Timeline& timeline, const CostTable& costs) {
  return figures_of(program, timeline, peaks_of(program, costs));
}

Figures figures_of(const Program& program, const Timeline& timeline,
                   std::vector<RankFigures> peaks) {
  Figures figures;
  figures.ranks = std::move(peaks);
  figures.makespan_ns = timeline.makespan_ns;
  for (int r = 0; r < program.ranks(); ++r) {
    RankFigures& rank = figures.ranks[static_cast<std::size_t>(r)];
    bool first = true;
    for (InstructionId id = program.rank_begin[static_cast<std::size_t>(r)];
         id < program.rank_begin[static_cast<std::size_t>(r) + 1]; ++id) {
      const Instruction& in = program.code[id];
      if (in.is_communication() || is_wait(in.kind) || is_call(in.kind) ||
          timeline.end[id] == kNotEnded)
        continue;
      rank.busy_ns += timeline.end[id] - timeline.start[id];
      if (first) rank.first_start_ns = timeline.start[id];
      first = false;
      rank.last_end_ns = timeline.end[id];
    }
    rank.span_ns = rank.last_end_ns - rank.first_start_ns;
  }
  set_ratios(figures);
  return figures;
}

}  // namespace pipewright
