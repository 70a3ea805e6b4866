#include "core/timeline/gpu_work.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace pipewright {

double share_at_work(const Program& program, const Timeline& timeline, const GpuWorkLog& log) {
  using Range = std::pair<std::int64_t, std::int64_t>;
  std::map<InstructionId, std::vector<Range>> ran;
  for (const GpuWork& piece : log.work) {
    const InstructionId id = piece.instruction;
    if (id == kNoInstruction || program.code[id].is_communication()) continue;
    ran[id].emplace_back(std::max(piece.start_ns, timeline.start[id]),
                         std::min(piece.end_ns, timeline.end[id]));
  }
  std::int64_t worked = 0, all = 0;
  for (auto& [id, ranges] : ran) {
    std::sort(ranges.begin(), ranges.end());
    std::int64_t until = timeline.start[id];
    for (const auto& [from, to] : ranges) {
      worked += std::max<std::int64_t>(0, to - std::max(from, until));
      until = std::max(until, to);
    }
    all += timeline.end[id] - timeline.start[id];
  }
  return all == 0 ? 0 : static_cast<double>(worked) / static_cast<double>(all);
}

}  // namespace pipewright
