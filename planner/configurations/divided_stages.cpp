#include "planner/configurations/divided_stages.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "exec/layers/divided_parts.hpp"

namespace pipewright::planner {
namespace {

/// The calls take what they cost; the computations share the rest. Returns the rest.
Nanoseconds weigh(ActionParts& action, Nanoseconds whole, const CostModel& costs) {
  Nanoseconds rest = whole;
  double weights = 0;
  for (Part& part : action.parts) {
    if (part.is_computation()) {
      weights += static_cast<double>(part.weight);
      continue;
    }
    const Nanoseconds time = costs.call_time(part.call);
    part.weight = time.value;
    rest = rest - time;
  }
  std::int64_t left = rest.value;
  Part* largest = nullptr;
  for (Part& part : action.parts) {
    if (!part.is_computation()) continue;
    const double share = static_cast<double>(part.weight) / weights;
    part.weight = std::max<std::int64_t>(1, std::llround(share * static_cast<double>(rest.value)));
    left -= part.weight;
    if (largest == nullptr || part.weight > largest->weight) largest = &part;
  }
  largest->weight = std::max<std::int64_t>(1, largest->weight + left);
  return rest;
}

Nanoseconds& time_of(StageCosts& costs, ActionKind kind) {
  return kind == ActionKind::F ? costs.f : kind == ActionKind::I ? costs.i : costs.b;
}

}  // namespace

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
      time = weigh(action, time, costs);
      result.parts.push_back(std::move(action));
    }
  }
  return result;
}

}  // namespace pipewright::planner
