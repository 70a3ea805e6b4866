// What a plan keeps in memory on each rank: parameters, gradients, the optimizer's state, and the
// activations that are live at the worst moment of the Program. Buffers of transfers under way and
// the device's own libraries are not counted (docs/metrics.md). Pure functions; bytes everywhere.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/costs.hpp"
#include "core/model.hpp"
#include "core/plan.hpp"
#include "core/program.hpp"

namespace pipewright::planner {

/// What one stage holds from the first step to the last.
struct StageState {
  Bytes parameters, gradients, optimizer;

  Bytes sum() const { return parameters + gradients + optimizer; }
};

/// AdamW keeps two moments of each parameter, SGD nothing. Moments are never narrower than 4 bytes;
/// a model of narrower elements keeps 4-byte master weights beside them.
StageState state_of(const Model& model, const StagePlan& stage, std::string_view optimizer);

/// The state of one of `shards` replicas that divide the optimizer's among themselves.
StageState sharded_state(const StageState& state, int shards);

/// The entry of CostTable::memory: F takes the saved activations of the stage's layers, W (or B)
/// gives them back, I gives nothing back. The last stage also keeps the loss's input.
StageMemory memory_of(const Model& model, const StagePlan& stage, int micro_batch_size,
                      std::string_view optimizer);

/// memory_of() for every stage of a plan.
std::vector<StageMemory> memory_of(const Model& model, std::span<const StagePlan> stages,
                                   int micro_batch_size, std::string_view optimizer);

/// One rank of a plan.
struct RankMemory {
  StageState state;   // of all its stages
  Bytes activations;  // at the moment of the peak
  Bytes peak() const { return state.sum() + activations; }
};

/// By rank. `program` is the plan's (program_of_plan()). The activations are those of
/// plan.costs.memory, or of memory_of() where the plan has no table.
std::vector<RankMemory> memory_by_rank(const Plan& plan, const Program& program);

}  // namespace pipewright::planner
