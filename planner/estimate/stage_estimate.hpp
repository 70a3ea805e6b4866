// The analytical estimate of a plan's stages, as the simulator reads it: a CostTable for any cut of
// the model into stages. The times of planner/estimate/step_estimate.hpp, layer by layer;
// docs/cost-model.md has the formulas. Pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/model/architecture.hpp"
#include "core/plan/plan.hpp"
#include "planner/estimate/layer_seconds.hpp"
#include "planner/estimate/setup.hpp"
#include "planner/partition/partition.hpp"

namespace pipewright::planner {

/// What all estimates of a job share.
struct EstimateContext {
  Architecture model;
  FrameworkTraits framework;
  Machine machine;
  std::shared_ptr<KnownLayers> known = nullptr;  // where several setups are asked for
};

/// F, I and W together of each layer of model_of(context.model), one micro-batch, in nanoseconds;
/// on the slowest node of each rank.
LayerCosts estimated_layer_costs(const EstimateContext& context, const ParallelSetup& setup);

/// Times of the stages. `stages[s].rank` says on which pipeline rank a stage is. OPT includes the
/// reduction of gradients among the replicas, the gathering of weights and what a step costs once,
/// as far as overlap leaves them exposed.
std::vector<StageCosts> estimated_stage_costs(const EstimateContext& context,
                                              const ParallelSetup& setup,
                                              std::span<const StagePlan> stages);

/// Memory of the stages on one device. I gives back what only it reads and adds the gradients that
/// W reads: inputs and output gradients of the products with weights stay until W (32 s·b·h of a
/// GPT's 34 s·b·h + 5 a·s²·b, arXiv:2401.10241 §2).
std::vector<StageMemory> estimated_stage_memory(const EstimateContext& context,
                                                const ParallelSetup& setup,
                                                std::span<const StagePlan> stages);

/// Everything that simulating `replicas` of the pipeline needs. Messages are those of all tensor
/// and context parallel devices of a rank together, and so are the rates of the routes.
CostTable estimated_cost_table(const EstimateContext& context, const ParallelSetup& setup,
                               std::span<const StagePlan> stages, int replicas);

/// Some rank of this setup holds at least this much, whatever the cut: all weights, gradients and
/// optimizer state, divided among the ranks.
Bytes least_estimated_memory(const EstimateContext& context, const ParallelSetup& setup);

/// A step that no schedule on this setup beats, whatever the cut, where each stage is on one rank.
/// The largest of three: all work, divided among the ranks by their speed; all work and all updates
/// with their reductions, divided by the number of ranks; and a micro-batch's way up through all F
/// and down through all I. For the first let c(l) be the least that layer l takes on any rank, and
/// slower(r) the least ratio, over the layers, of the time on rank r to c(l). The load of rank r is
/// then at least slower(r) times the sum of its c(l), so the busiest rank has at least sum c(l) /
/// sum 1 / slower(r).
/// `with_messages` false: where schedules may hide what is sent inside stages, without that.
std::int64_t least_estimated_step(const EstimateContext& context, const ParallelSetup& setup,
                                  bool with_messages = true);

}  // namespace pipewright::planner
