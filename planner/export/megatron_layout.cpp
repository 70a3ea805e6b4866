#include "planner/export/megatron_layout.hpp"

namespace pipewright::planner {
namespace {

std::string letters_of(const StageBlocks& stage) {
  std::string text = stage.embedding ? "E" : "";
  if (stage.blocks > 3) {
    text += "t*" + std::to_string(stage.blocks);
  } else {
    text += std::string(static_cast<std::size_t>(stage.blocks), 't');
  }
  return text + (stage.head ? "L" : "");
}

}  // namespace

std::string megatron_layout(const std::vector<StageBlocks>& stages) {
  std::string text;
  for (std::size_t first = 0; first < stages.size();) {
    const std::string letters = letters_of(stages[first]);
    std::size_t end = first + 1;
    // The last stage has no | behind it, so it is in no group.
    while (end + 1 < stages.size() && letters_of(stages[end]) == letters) ++end;
    if (end == stages.size()) {
      text += letters;
    } else if (end - first == 1) {
      text += letters + "|";
    } else {
      text += "(" + letters + "|)*" + std::to_string(end - first);
    }
    first = end;
  }
  return text;
}

}  // namespace pipewright::planner
