// What a plan keeps in memory on each rank: parameters, gradients, the optimizer's state, and the
// activations that are live at the worst moment of the Program, with what the action of that moment
// needs beside them (planner/memory/stage_buffers.hpp), and on CPUs copies of gradients for other
// ranks. Messages that wait for their reader and the device's own libraries are not counted
// (docs/metrics.md).
// Pure functions; bytes everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/model/model.hpp"
#include "core/model/recompute.hpp"
#include "core/model/tensor_split.hpp"
#include "core/plan/plan.hpp"
#include "core/program/program.hpp"
#include "planner/memory/stage_buffers.hpp"

namespace pipewright::planner {

/// What one stage holds from the first step to the last.
struct StageState {
  Bytes parameters, gradients, optimizer;
  /// Where replicas divide the experts: so many do, and what part of each of these is of experts.
  int expert_ranks = 1;
  double of_experts = 0;

  Bytes sum() const { return parameters + gradients + optimizer; }
};

/// AdamW keeps two moments of each parameter, SGD nothing. Gradients and moments are never narrower
/// than 4 bytes, and a model of narrower elements keeps 4-byte master weights beside them: of
/// AdamW's 16 bytes a parameter in float32, 18 in bfloat16.
/// `ranks`: so many divide its layers.
StageState state_of(const Model& model, const StagePlan& stage, std::string_view optimizer,
                    const StageDivision& ranks = {});

/// The gradients of weights of so many bytes.
Bytes gradients_of(const Model& model, Bytes weights);

/// How a stage's replicas divide its state among them (ZeRO).
struct StateShards {
  int zero = 0, count = 1;
  int sharing = 1;  // ranks that add up their gradients, whether they divide anything or not
};
/// The state of one of these replicas, of experts among those that hold the same ones: the
/// optimizer's part, from stage 2 of ZeRO on that of the gradients, from stage 3 on that of the
/// weights.
StageState sharded_state(const StageState& state, const StateShards& shards);
/// The same in the entry of CostTable::memory that memory_of() gives for the whole state.
void divide(StageMemory& memory, const StageState& state, const StateShards& shards);
/// Sets what a rank on a CPU copies for the others.
void set_copies(StageMemory& memory, const StageState& state, const StateShards& shards);

/// The entry of CostTable::memory: what is held of a micro-batch after F, and how I changes that
/// until W lets go of it. `recompute` by layer of the model; empty: nothing is recomputed. `ranks`:
/// so many divide the layers.
StageMemory memory_of(const Model& model, const StagePlan& stage, int micro_batch_size,
                      std::string_view optimizer, std::span<const LayerRecompute> recompute = {},
                      const StageDivision& ranks = {});

/// The same, from what its layers hold.
StageMemory memory_of(const StageState& state, const StageBuffers& buffers);

/// memory_of() for every stage of a plan.
std::vector<StageMemory> memory_of(const Model& model, std::span<const StagePlan> stages,
                                   int micro_batch_size, std::string_view optimizer,
                                   std::span<const LayerRecompute> recompute = {},
                                   const StageDivision& ranks = {});

/// What a stage of a plan holds in a run. `planned`: the plan's entry, which is of a training in
/// fast numerics. Exact ones hold a sum of two 8-byte words for each parameter
/// (exec/base/fixed_point.hpp) from the first step to the last. A run without a backward holds the
/// weights, and within each F what that needs.
StageMemory memory_of_run(const Plan& plan, std::size_t stage, const StageMemory& planned,
                          exec::Numerics numerics, exec::RunMode mode);

/// One rank of a plan.
struct RankMemory {
  StageState state;  // of all its stages
  /// At the moment of the peak, with what its action needs and older versions of the weights.
  Bytes activations;
  Bytes peak() const { return state.sum() + activations; }
};

/// Where replicas divide the experts, their number of rows is not known before a run, and figures
/// are of rows that come evenly. The most that a rank holds if as many as can come to its experts
/// in every micro-batch; nullopt where that makes no difference.
std::optional<Bytes> most_with_uneven_rows(const Plan& plan, const Program& program);

/// By rank. `program` is the plan's (program_of_plan()). The activations are those of
/// plan.costs.memory, or of memory_of() where the plan has no table.
std::vector<RankMemory> memory_by_rank(const Plan& plan, const Program& program);

}  // namespace pipewright::planner
