#include "planner/memory.hpp"

#include <algorithm>

#include "core/model_tie.hpp"
#include "core/timeline.hpp"

namespace pipewright::planner {
namespace {

constexpr std::int64_t kStateBytes = 4;  // width of moments and master weights at least

}  // namespace

StageState state_of(const Model& model, const StagePlan& stage, std::string_view optimizer) {
  std::int64_t parameters = 0;
  for (int l = stage.first_layer; l < stage.end_layer; ++l) {
    parameters += footprint(model.layers[static_cast<std::size_t>(l)], model, 1).parameters;
  }
  const auto tied = tie_of(model);  // a head without its embedding holds a table of its own
  if (tied && stage.first_layer > tied->embedding && stage.first_layer <= tied->head &&
      tied->head < stage.end_layer)
    parameters += tied->weights;
  const std::int64_t element = model.bytes_per_element;
  const std::int64_t wide = std::max(element, kStateBytes);
  StageState state;
  state.parameters = state.gradients = Bytes(parameters * element);
  if (optimizer == "adamw") state.optimizer += Bytes(2 * parameters * wide);
  if (element < kStateBytes) state.optimizer += Bytes(parameters * kStateBytes);
  return state;
}

StageState sharded_state(const StageState& state, int shards) {
  StageState part = state;
  part.optimizer = Bytes((state.optimizer.value + shards - 1) / shards);
  return part;
}

StageMemory memory_of(const Model& model, const StagePlan& stage, int micro_batch_size,
                      std::string_view optimizer) {
  StageMemory memory;
  memory.constant = state_of(model, stage, optimizer).sum();
  for (int l = stage.first_layer; l < stage.end_layer; ++l) {
    const auto layer =
        footprint(model.layers[static_cast<std::size_t>(l)], model, micro_batch_size);
    memory.f += Bytes(layer.saved_bytes);
    const bool last = l + 1 == static_cast<int>(model.layers.size());
    if (last) memory.f += Bytes(layer.output_bytes);  // what the loss's gradient is made from
  }
  memory.w = Bytes(-memory.f.value);
  return memory;
}

std::vector<StageMemory> memory_of(const Model& model, std::span<const StagePlan> stages,
                                   int micro_batch_size, std::string_view optimizer) {
  std::vector<StageMemory> table;
  table.reserve(stages.size());
  for (const StagePlan& stage : stages) {
    table.push_back(memory_of(model, stage, micro_batch_size, optimizer));
  }
  return table;
}

std::vector<RankMemory> memory_by_rank(const Plan& plan, const Program& program) {
  CostTable costs = plan.costs;
  if (costs.memory.empty()) {
    costs.memory =
        memory_of(plan.model, plan.stages, plan.micro_batch_size, plan.training.optimizer);
  }
  std::vector<RankMemory> ranks;
  for (const RankFigures& peak : peaks_of(program, costs)) {
    const RankId rank(static_cast<std::int64_t>(ranks.size()));
    RankMemory memory;
    Bytes constant;
    for (const StageId stage : program.placement.stages_of(rank)) {
      const auto s = static_cast<std::size_t>(stage.value);
      const StageState state =
          sharded_state(state_of(plan.model, plan.stages[s], plan.training.optimizer),
                        plan.sharding_stage > 0 ? plan.replicas() : 1);
      memory.state.parameters += state.parameters;
      memory.state.gradients += state.gradients;
      memory.state.optimizer += state.optimizer;
      constant += costs.memory[s].constant;
    }
    memory.activations = Bytes(peak.peak_bytes) - constant;
    ranks.push_back(memory);
  }
  return ranks;
}

}  // namespace pipewright::planner
