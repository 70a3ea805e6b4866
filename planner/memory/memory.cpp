#include "planner/memory/memory.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/model/context_split.hpp"
#include "core/model/tensor_split.hpp"
#include "core/model/tie.hpp"
#include "core/model/weights.hpp"
#include "core/order/devices.hpp"
#include "core/timeline/timeline.hpp"
#include "exec/layers/metered_layers.hpp"
#include "exec/layers/rank_groups.hpp"
#include "exec/layers/stage_layers.hpp"

namespace pipewright::planner {
namespace {

constexpr std::int64_t kStateWidth = 4;  // width of moments and master weights at least
constexpr std::int64_t kExactSumBytes = 16;

/// `holders`: ranks of a pipeline that hold each stage.
StateShards shards_of(const Plan& plan, int holders = 1) {
  const int context = plan.division().context;
  const int parts = plan.sharding_stage == 0 ? 1 : plan.shards() * context;
  return {plan.sharding_stage, parts == 1 ? 1 : parts * holders,
          plan.replicas() * context * holders};
}

/// Two where the Program's schedule goes both ways.
int holders_of(const Plan& plan, const Program& program) {
  int held = 0;
  for (int r = 0; r < program.ranks(); ++r)
    held += static_cast<int>(program.placement.stages_of(RankId(r)).size());
  const int context =
      plan.replicas_are_ranks ? plan.division().context : size_along(program.devices, kContextAxis);
  const int blocks = size_along(program.devices, kTensorAxis) * context;
  return std::max(1, held / (program.stages * plan.replicas() * blocks));
}

/// Of what is there for each parameter of the state.
Bytes part_of(Bytes whole, const StageState& state, const StateShards& shards) {
  const auto part = [](std::int64_t all, int count) { return (all + count - 1) / count; };
  const auto of_experts =
      static_cast<std::int64_t>(std::llround(state.of_experts * static_cast<double>(whole.value)));
  return Bytes(part(whole.value - of_experts, shards.count) +
               part(of_experts, std::max(1, shards.count / state.expert_ranks)));
}

}  // namespace

namespace {

struct ParameterCount {
  std::int64_t all = 0, of_experts = 0;
};

/// Of one of the ranks that divide the stage, as its layers say them.
ParameterCount divided_parameters(const Model& model, const StagePlan& stage,
                                  const StageDivision& ranks) {
  exec::MeteredOps ops(model.bytes_per_element);
  exec::RankGroups groups(kFirstPlace, ranks, exec::Numerics::Fast);
  const auto layers =
      exec::make_metered_layers(model, stage.first_layer, stage.end_layer,
                                exec::extent_of_rank(model, 1, ranks), ops, {}, &groups);
  std::set<const exec::Parameter*> all;  // a table that two layers share counts once
  for (const auto& layer : layers) {
    std::vector<exec::Parameter*> own;
    layer->collect(own);
    all.insert(own.begin(), own.end());
  }
  ParameterCount count;
  for (const exec::Parameter* one : all) {
    if (one->is_statistic) continue;
    count.all += one->start.size;
    if (one->is_of_experts) count.of_experts += one->start.size;
  }
  return count;
}

std::int64_t whole_parameters(const Model& model, const StagePlan& stage) {
  std::int64_t parameters = 0;
  for (int l = stage.first_layer; l < stage.end_layer; ++l) {
    const Layer& layer = model.layers[static_cast<std::size_t>(l)];
    parameters += static_cast<std::int64_t>(parameter_count(layer));
    // A head without its embedding, the model's first layer, holds a table of its own.
    if (stage.first_layer > 0 && holds_tied(layer)) parameters += tie_of(model)->weights;
  }
  return parameters;
}

}  // namespace

StageState state_of(const Model& model, const StagePlan& stage, std::string_view optimizer,
                    const StageDivision& ranks) {
  const ParameterCount count = ranks == StageDivision{}
                                   ? ParameterCount{whole_parameters(model, stage), 0}
                                   : divided_parameters(model, stage, ranks);
  const std::int64_t parameters = count.all;
  const std::int64_t element = model.bytes_per_element;
  const std::int64_t wide = std::max(element, kStateWidth);
  StageState state;
  state.expert_ranks = ranks.expert_replicas();
  if (parameters > 0)
    state.of_experts = static_cast<double>(count.of_experts) / static_cast<double>(parameters);
  state.parameters = Bytes(parameters * element);
  state.gradients = gradients_of(model, state.parameters);
  if (optimizer == "adamw") state.optimizer += Bytes(2 * parameters * wide);
  if (element < kStateWidth) state.optimizer += Bytes(parameters * kStateWidth);
  return state;
}

Bytes gradients_of(const Model& model, Bytes weights) {
  const std::int64_t element = model.bytes_per_element;
  return Bytes(weights.value / element * std::max(element, kStateWidth));
}

StageState sharded_state(const StageState& state, const StateShards& shards) {
  StageState part = state;
  if (shards.zero >= 1) part.optimizer = part_of(state.optimizer, state, shards);
  if (shards.zero >= 2) part.gradients = part_of(state.gradients, state, shards);
  if (shards.zero >= 3) part.parameters = part_of(state.parameters, state, shards);
  return part;
}

void divide(StageMemory& memory, const StageState& state, const StateShards& shards) {
  if (shards.count == 1) return;
  memory.constant -= state.sum() - sharded_state(state, shards).sum();
  if (shards.zero >= 2) memory.whole_gradients = state.gradients;
  if (shards.zero >= 3) memory.whole_weights = state.parameters;
}

void set_copies(StageMemory& memory, const StageState& state, const StateShards& shards) {
  if (shards.sharing == 1 || shards.zero >= 2) return;
  memory.copied_gradients = state.gradients;
  if (shards.zero == 1 && shards.count > 1)
    memory.copied_weights = part_of(state.parameters, state, shards);
}

StageMemory memory_of(const Model& model, const StagePlan& stage, int micro_batch_size,
                      std::string_view optimizer, std::span<const LayerRecompute> recompute,
                      const StageDivision& ranks) {
  return memory_of(state_of(model, stage, optimizer, ranks),
                   buffers_of(model, stage, micro_batch_size, recompute, ranks));
}

StageMemory memory_of(const StageState& state, const StageBuffers& buffers) {
  StageMemory memory;
  memory.constant = state.sum();
  memory.version = state.parameters;
  memory.f = Bytes(buffers.f.change);
  memory.i = Bytes(buffers.i.change);
  memory.w = Bytes(-buffers.f.change - buffers.i.change);
  memory.in_f = Bytes(buffers.f.most);
  memory.in_i = Bytes(buffers.i.most);
  memory.in_w = Bytes(buffers.w.most);
  memory.in_b = Bytes(buffers.most_in_b());
  return memory;
}

std::vector<StageMemory> memory_of(const Model& model, std::span<const StagePlan> stages,
                                   int micro_batch_size, std::string_view optimizer,
                                   std::span<const LayerRecompute> recompute,
                                   const StageDivision& ranks) {
  std::vector<StageMemory> table;
  table.reserve(stages.size());
  for (const StagePlan& stage : stages)
    table.push_back(memory_of(model, stage, micro_batch_size, optimizer, recompute, ranks));
  return table;
}

namespace {

/// The ranks that divide the layers of the plan's model, where they can.
StageDivision division_of(const Plan& plan) {
  const StageDivision ranks = plan.division();
  const bool divides = tensor_fault(plan.model, ranks.tensor).empty();
  StageDivision able;
  if (divides) able.tensor = ranks.tensor;
  able.rows = divides && ranks.rows && sequence_fault(plan.model, ranks.tensor).empty();
  if (context_fault(plan.model, ranks).empty()) {
    able.context = ranks.context;
    able.ring = ranks.ring;
  }
  if (!expert_fault(plan.model, ranks).empty()) return able;
  able.experts = ranks.experts;
  if (able.rows && able.context == ranks.context) able.fold = ranks.fold;
  return able;
}

}  // namespace

StageMemory memory_of_run(const Plan& plan, std::size_t stage, const StageMemory& planned,
                          exec::Numerics numerics, exec::RunMode mode) {
  const bool trains = mode == exec::RunMode::Train;
  if (trains && numerics == exec::Numerics::Fast) return planned;
  const StagePlan& layers = plan.stages[stage];
  const StageDivision ranks = division_of(plan);
  const auto recompute = recompute_of(plan.model, plan.training.recompute);
  const StageState state = state_of(plan.model, layers, plan.training.optimizer, ranks);
  if (!trains) {
    StageMemory memory;
    memory.constant = state.parameters;
    memory.in_f = Bytes(
        forward_alone(plan.model, layers, plan.micro_batch_size, recompute, ranks, numerics, mode)
            .most);
    return memory;
  }
  StageMemory memory = planned;
  const Bytes sums(state.parameters.value / plan.model.bytes_per_element * kExactSumBytes);
  const bool are_divided = memory.whole_gradients.value > 0;
  memory.constant += are_divided ? part_of(sums, state, shards_of(plan)) : sums;
  if (are_divided) memory.whole_gradients += sums;
  if (memory.copied_gradients.value > 0) memory.copied_gradients = sums;
  if (ranks.context == 1) return memory;
  // Their W holds the sums of a micro-batch besides.
  const StageBuffers buffers = buffers_of(plan.model, layers, plan.micro_batch_size, recompute,
                                          ranks, RowsToExperts::Even, exec::Numerics::Exact);
  memory.in_w = Bytes(buffers.w.most);
  memory.in_b = Bytes(buffers.most_in_b());
  if (ranks.ring) {  // all that comes round is kept, and so are probabilities
    const StageMemory exact = memory_of(state, buffers);
    memory.f = exact.f;
    memory.i = exact.i;
    memory.w = exact.w;
    memory.in_f = exact.in_f;
    memory.in_i = exact.in_i;
  }
  return memory;
}

namespace {

/// The plan's own table, or what memory_of() says of it.
std::vector<StageMemory> memory_table(const Plan& plan, const StateShards& shards) {
  if (!plan.costs.memory.empty()) return plan.costs.memory;
  const StageDivision ranks = division_of(plan);
  std::vector<StageMemory> table =
      memory_of(plan.model, plan.stages, plan.micro_batch_size, plan.training.optimizer,
                recompute_of(plan.model, plan.training.recompute), ranks);
  for (std::size_t s = 0; s < table.size(); ++s) {
    const StageState state = state_of(plan.model, plan.stages[s], plan.training.optimizer, ranks);
    divide(table[s], state, shards);
    set_copies(table[s], state, shards);
  }
  return table;
}

}  // namespace

std::optional<Bytes> most_with_uneven_rows(const Plan& plan, const Program& program) {
  const StageDivision ranks = division_of(plan);
  if (ranks.expert_holders() == 1) return std::nullopt;
  const auto recompute = recompute_of(plan.model, plan.training.recompute);
  const StateShards shards = shards_of(plan, holders_of(plan, program));
  CostTable costs = plan.costs;
  costs.memory = memory_table(plan, shards);
  const auto fullest = [&] {
    Bytes held;
    for (const RankFigures& rank : peaks_of(program, costs))
      held = std::max(held, Bytes(rank.peak_bytes));
    return held;
  };
  const Bytes evenly = fullest();
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const StageState state = state_of(plan.model, plan.stages[s], plan.training.optimizer, ranks);
    StageMemory uneven =
        memory_of(state, buffers_of(plan.model, plan.stages[s], plan.micro_batch_size, recompute,
                                    ranks, RowsToExperts::Most));
    divide(uneven, state, shards);
    uneven.copied_gradients = costs.memory[s].copied_gradients;
    uneven.copied_weights = costs.memory[s].copied_weights;
    costs.memory[s] = uneven;
  }
  const Bytes most = fullest();
  return most > evenly ? std::optional(most) : std::nullopt;
}

std::vector<RankMemory> memory_by_rank(const Plan& plan, const Program& program) {
  CostTable costs = plan.costs;
  const StateShards shards = shards_of(plan, holders_of(plan, program));
  costs.memory = memory_table(plan, shards);
  std::vector<RankMemory> ranks;
  for (const RankFigures& peak : peaks_of(program, costs)) {
    const RankId rank(static_cast<std::int64_t>(ranks.size()));
    RankMemory memory;
    Bytes constant;
    for (const StageId stage : program.placement.stages_of(rank)) {
      const StagePlan& of = plan.stages[static_cast<std::size_t>(stage.value)];
      const StageState state = sharded_state(
          state_of(plan.model, of, plan.training.optimizer, division_of(plan)), shards);
      memory.state.parameters += state.parameters;
      memory.state.gradients += state.gradients;
      memory.state.optimizer += state.optimizer;
      constant += costs.memory[static_cast<std::size_t>(stage.value)].constant;
    }
    memory.activations = Bytes(peak.peak_bytes) - constant;
    ranks.push_back(memory);
  }
  return ranks;
}

}  // namespace pipewright::planner
