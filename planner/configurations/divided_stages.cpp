#include "planner/configurations/divided_stages.hpp"

#include <utility>

#include "core/costs/part_weights.hpp"
#include "core/order/devices.hpp"
#include "exec/layers/divided/divided_parts.hpp"

namespace pipewright::planner {
namespace {

/// Replicas and ranks along cp are ranks of their own in the plan's Program, so what those that
/// divide the experts or sequences exchange is no part of an action there: its time is in that of
/// the computations.
void count_exchanges_as_computed(ActionParts& action) {
  std::vector<Part> parts;
  for (Part& part : action.parts) {
    if (!part.is_computation() && part.call.group != kTensorAxis) continue;
    const bool joins = part.is_computation() && !parts.empty() && parts.back().is_computation();
    if (!joins) {
      parts.push_back(std::move(part));
      continue;
    }
    part.weight += parts.back().weight;
    parts.back() = std::move(part);
  }
  action.parts = std::move(parts);
}

}  // namespace

StageParts divided_stage_parts(const CostModel& costs, const Model& model,
                               std::span<const LayerRecompute> recompute, const ParallelSetup& mesh,
                               std::span<const StagePlan> stages,
                               std::span<const StageCosts> whole) {
  StageParts result{{}, {whole.begin(), whole.end()}};
  if (mesh.tensor == 1) return result;
  result.parts =
      exec::divided_parts(model, stages, mesh.micro_batch_size, recompute, mesh.division());
  for (ActionParts& action : result.parts) {
    count_exchanges_as_computed(action);
    Nanoseconds& time =
        result.computations[static_cast<std::size_t>(action.stage.value)].*time_of(action.kind);
    time = weigh(action, time, [&](const Call& call) { return costs.call_time(call); });
  }
  return result;
}

}  // namespace pipewright::planner
