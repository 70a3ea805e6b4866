#include "traces/analysis/critical_path.hpp"

#include <algorithm>
#include <array>

#include "traces/analysis/backward_path.hpp"

namespace pipewright::traces {

std::string_view to_string(PathKind kind) {
  constexpr std::array<std::string_view, kPathKinds> kNames = {"computation", "message",
                                                               "collective", "unexplained"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::vector<PathStep> critical_path(const Program& program, const Timeline& timeline, Times times) {
  BackwardPath path(program, timeline, times);
  std::vector<PathStep> steps;
  const InstructionId last = path.last();
  if (last == kNoInstruction) return steps;
  path.before_end(last, 0, steps);
  std::erase_if(steps, [](const PathStep& step) { return step.start_ns >= step.end_ns; });
  std::reverse(steps.begin(), steps.end());
  return steps;
}

}  // namespace pipewright::traces
