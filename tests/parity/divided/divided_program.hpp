// Pipelines whose stages are divided among ranks (tensor, context and expert parallelism), and
// small models to divide.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/order/devices.hpp"
#include "core/order/forward_order.hpp"
#include "core/plan/tied_stages.hpp"
#include "exec/layers/divided/divided_parts.hpp"
#include "planner/plans/data_parallel.hpp"
#include "tests/parity/training_setting.hpp"

namespace pipewright::tests {

inline Model divisible_model(Json changes = Json::object()) {
  Json transformer = {{"hidden", 32}, {"layers", 6},       {"heads", 8},
                      {"ffn", 40},    {"vocabulary", 256}, {"sequence", 5}};
  transformer.update(changes);
  return read_model(
      JsonCursor(Json{{"schema", "pipewright.model/1"}, {"transformer", transformer}}, "model"));
}
/// Of eight tokens, unless `changes` say otherwise.
inline Model with_eight_tokens(Json changes) {
  if (!changes.contains("sequence")) changes["sequence"] = 8;
  return divisible_model(std::move(changes));
}
/// Two heads of queries share a head of keys.
inline Model divisible_llama() { return divisible_model({{"style", "llama"}, {"kv_heads", 4}}); }
/// Its experts are whole on every rank, attention and what every row goes through besides are not.
inline Model divisible_mixtral(const Json& changes = Json::object()) {
  Json all = {{"style", "llama"}, {"kv_heads", 4},   {"experts", 4},
              {"top_k", 2},       {"shared_ffn", 8}, {"balance_loss", 0.05}};
  all.update(changes);
  return divisible_model(all);
}
/// Latent attention, queries straight from the row, and no experts.
inline Model divisible_latent(const Json& changes = Json::object()) {
  Json all = {
      {"style", "llama"},
      {"latent_attention", {{"key_value_rank", 6}, {"plain", 5}, {"rotary", 4}, {"value", 7}}}};
  all.update(changes);
  return divisible_model(all);
}
/// Latent attention, and a dense block in front of those with experts.
inline Model divisible_deepseek(const Json& changes = Json::object()) {
  Json all = {
      {"style", "llama"},
      {"latent_attention",
       {{"query_rank", 10}, {"key_value_rank", 6}, {"plain", 5}, {"rotary", 4}, {"value", 3}}},
      {"ffn", 8},
      {"experts", 8},
      {"top_k", 2},
      {"scoring", "sigmoid"},
      {"groups", 4},
      {"top_groups", 2},
      {"scaling", 2.5},
      {"balance_rate", 0.01},
      {"shared_ffn", 8},
      {"dense_layers", 1},
      {"dense_ffn", 40}};
  all.update(changes);
  return divisible_model(all);
}
inline Model divisible_tied() { return divisible_model({{"tied_head", true}}); }

/// What actions of the kind tell other ranks, in order.
inline std::vector<std::string> calls_in(const std::vector<ActionParts>& actions, ActionKind kind) {
  std::vector<std::string> calls;
  for (const ActionParts& action : actions) {
    if (action.kind != kind) continue;
    for (const Part& part : action.parts) {
      if (!part.is_computation()) calls.push_back(to_string(part.call));
    }
  }
  return calls;
}

struct Layout {
  int tensor = 2, replicas = 1;
  bool sharded = false;
  std::vector<LayerRecompute> recompute = {};
  int zero = 1;       // where it is sharded
  int experts = 1;    // ranks that divide them
  int groups = 1;     // of replicas, where it is sharded
  bool rows = false;  // sequence parallelism
  int context = 1;    // ranks that have a part of every sequence each
  ExpertFold fold = ExpertFold::None;
  bool ring = false;  // keys and values go round the ranks along cp
  bool clips = true;

  StageDivision division() const { return {tensor, experts, rows, context, fold, ring}; }
};

/// The pipeline's order, or its forwards, with the parts that the model's layers have in these
/// numerics, for all devices.
inline Program divided(const Order& pipeline, const Model& model, const Layout& layout,
                       const CommPolicy& policy, exec::Numerics numerics = exec::Numerics::Exact,
                       exec::RunMode mode = exec::RunMode::Train) {
  const bool trains = mode == exec::RunMode::Train;
  Order order = planner::replicate(trains ? pipeline : forward_order(pipeline), layout.replicas);
  const std::vector<StagePlan> stages = equal_stages(model, lower(order, policy));
  order.parts = exec::divided_parts(model, stages, kMicroBatchSize, layout.recompute,
                                    layout.division(), numerics, mode);
  if (layout.tensor > 1) order.mesh.push_back({std::string(kTensorAxis), layout.tensor});
  if (layout.context > 1) order.mesh.push_back({std::string(kContextAxis), layout.context});
  if (layout.experts > 1) order.mesh.push_back({std::string(kExpertAxis), layout.experts});
  if (!trains) return lower(written_out(order), policy);
  std::vector<StageId> tied;
  for (const StageId stage : tied_stages(model, stages)) tied.push_back(stage);
  return lower(written_out(order), policy,
               {.clips = layout.clips,
                .optimizer = true,
                .sharded = layout.sharded,
                .sharding = {.zero = layout.sharded ? layout.zero : 0, .groups = layout.groups},
                .tied = tied});
}
inline Program divided(const Order& pipeline, const Model& model, const Layout& layout,
                       const char* policy = "torch",
                       exec::Numerics numerics = exec::Numerics::Exact,
                       exec::RunMode mode = exec::RunMode::Train) {
  return divided(pipeline, model, layout, comm_policy_preset(policy), numerics, mode);
}

/// Not to be moved, as Setting.
struct DividedSetting : Setting {
  DividedSetting(const Program& program, const Model& what, exec::Numerics numerics,
                 const Layout& layout)
      : Setting(program, what) {
    training.micro_batches = micro_batches_of_data(program.devices, program.micro_batches);
    training.options.numerics = numerics;
    training.options.recompute = layout.recompute;
    training.options.ranks.rows = layout.rows;
    training.options.ranks.fold = layout.fold;
    training.options.ranks.ring = layout.ring;
    training.optimizer.clip_grad_norm = layout.clips ? 0.5 : 0;
    data = exec::make_data(
        model, {.samples = kMicroBatchSize, .micro_batches = training.micro_batches, .seed = 7},
        PIPEWRIGHT_SOURCE_DIR "/LICENSE");
    training.data = data.get();
  }
};

}  // namespace pipewright::tests
