#include "planner/configurations/divided_stages.hpp"

#include <utility>

#include "core/costs/part_weights.hpp"
#include "exec/layers/divided_parts.hpp"

namespace pipewright::planner {

StageParts divided_stage_parts(const CostModel& costs, const Model& model,
                               std::span<const LayerRecompute> recompute, const ParallelSetup& mesh,
                               std::span<const StagePlan> stages,
                               std::span<const StageCosts> whole) {
  StageParts result{{}, {whole.begin(), whole.end()}};
  if (mesh.tensor == 1) return result;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    for (ActionParts& action :
         exec::divided_parts(model, stages[s].first_layer, stages[s].end_layer,
                             mesh.micro_batch_size, recompute, {mesh.tensor, 1})) {
      action.stage = StageId(static_cast<std::int64_t>(s));
      Nanoseconds& time = time_of(result.computations[s], action.kind);
      time = weigh(action, time, [&](const Call& call) { return costs.call_time(call); });
      result.parts.push_back(std::move(action));
    }
  }
  return result;
}

}  // namespace pipewright::planner
