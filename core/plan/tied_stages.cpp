#include "core/plan/tied_stages.hpp"

#include <optional>

#include "core/model/tie.hpp"

namespace pipewright {

std::vector<StageId> tied_stages(const Model& model, std::span<const StagePlan> stages) {
  const std::optional<Tie> tie = tie_of(model);
  if (!tie) return {};
  std::vector<StageId> holders;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const auto holds = [&](int layer) {
      return stages[s].first_layer <= layer && layer < stages[s].end_layer;
    };
    if (holds(tie->embedding) || holds(tie->head))
      holders.emplace_back(static_cast<std::int64_t>(s));
  }
  if (holders.size() < 2) holders.clear();
  return holders;
}

}  // namespace pipewright
