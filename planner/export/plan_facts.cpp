#include "planner/export/plan_facts.hpp"

#include <algorithm>
#include <cstdio>

#include "core/model/architecture_model.hpp"
#include "core/model/find_layer.hpp"

namespace pipewright::planner {
namespace {

/// Layer 0 of such a model is the embedding, the last one the norm and the head.
std::vector<StageBlocks> blocks_of(const Plan& plan, int blocks) {
  std::vector<StageBlocks> stages;
  for (const StagePlan& stage : plan.stages) {
    StageBlocks held;
    held.embedding = stage.first_layer == 0;
    held.head = stage.end_layer == blocks + 2;
    held.first_block = std::max(stage.first_layer - 1, 0);
    held.blocks = std::min(stage.end_layer - 1, blocks) - held.first_block;
    stages.push_back(held);
  }
  return stages;
}

/// A decoder's ends are left out: no tool computes them again.
std::optional<LayerRecompute> recompute_of_blocks(const Plan& plan, bool decoder) {
  const auto layers = recompute_of(plan.model, plan.training.recompute);
  const std::size_t first = decoder ? 1 : 0, end = layers.size() - (decoder ? 1 : 0);
  for (std::size_t layer = first; layer < end; ++layer) {
    if (layers[layer] != layers[first]) return std::nullopt;
  }
  return layers[first];
}

/// In words the first layer of a kind that no transformer of GPT's style has; "": there is none.
std::string layer_beyond_gpt(const Model& model) {
  const auto found = find_layer(model, [](const Layer& layer) {
    switch (layer.kind) {
      case LayerKind::Embedding:
      case LayerKind::Residual:
      case LayerKind::Sequential:
      case LayerKind::LayerNorm:
      case LayerKind::Linear:
      case LayerKind::Gelu:
        return false;
      case LayerKind::CausalSelfAttention:
        return layer.kv_heads > 0 || layer.rotary_base > 0;
      default:
        return true;
    }
  });
  if (!found) return "";
  const bool is_attention = found->layer->kind == LayerKind::CausalSelfAttention;
  return "\"" + found->path + "\", " +
         (is_attention ? "attention with rotary positions or shared keys"
                       : "of kind " + std::string(to_string(found->layer->kind)));
}

}  // namespace

PlanFacts facts_of(const Plan& plan) {
  PlanFacts facts;
  facts.model = plan.architecture;
  // Of Llama's layers an architecture leaves out what these tools would have to be told: the base
  // of rotary positions, how a router chooses.
  if (const auto read = architecture_of(plan.model); !facts.model && read && !read->gated)
    facts.model = read;
  facts.tensor = plan.mesh.size("tp");
  facts.context = plan.mesh.size("cp");
  facts.data = plan.mesh.size("dp");
  facts.pipeline = plan.mesh.size("pp");
  facts.experts = plan.expert_parallel;
  facts.expert_tensor = plan.expert_tensor();
  facts.sequence_parallel = plan.sequence_parallel;
  // Planned by formulas, ranks along cp are none of the Program's, and it is the framework's
  // affair.
  if (facts.context > 1 && plan.replicas_are_ranks)
    facts.cp_comm_type = plan.ring ? "p2p" : "all_gather";
  facts.zero = facts.data > 1 ? plan.sharding_stage : 0;
  facts.shards = facts.zero > 0 ? plan.shards() : 1;
  facts.chunks = plan.schedule.chunks;
  facts.schedule = plan.schedule.order ? "custom" : plan.schedule.name;
  facts.global_batch = facts.data * plan.micro_batches * plan.micro_batch_size;
  if (facts.model) facts.stages = blocks_of(plan, facts.model->blocks);
  facts.recompute = recompute_of_blocks(plan, facts.model.has_value());
  if (!facts.model) facts.foreign_layer = layer_beyond_gpt(plan.model);
  return facts;
}

void require_all_sharded(const PlanFacts& facts, const std::string& tool, ExportedPlan& result) {
  if (facts.zero == 0 || facts.shards == facts.data) return;
  result.refusals.push_back("for " + tool + " all replicas divide their state; of the plan's " +
                            std::to_string(facts.data) + " only " + std::to_string(facts.shards) +
                            " do, take that many replicas");
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

bool clips_or_says_no(const TrainingSpec& training) {
  return training.clip_grad_norm > 0 || training.clip_grad_norm_given;
}

std::string describe(const std::vector<StageBlocks>& stages) {
  std::string text;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const StageBlocks& held = stages[stage];
    std::string parts = held.embedding ? "embedding" : "";
    if (held.blocks > 0) {
      parts += (parts.empty() ? "" : " and ") + std::to_string(held.blocks) +
               (held.blocks == 1 ? " block" : " blocks");
    }
    if (held.head) parts += std::string(parts.empty() ? "" : " and ") + "head";
    text += (text.empty() ? "" : ", ") + std::to_string(stage) + ": " + parts;
  }
  return text;
}

bool evenly_cut(const PlanFacts& facts) {
  return std::all_of(facts.stages.begin(), facts.stages.end(), [&](const StageBlocks& stage) {
    return stage.blocks == facts.stages.front().blocks;
  });
}

void require_transformer(const PlanFacts& facts, const std::string& tool, ExportedPlan& result) {
  if (facts.model && facts.model->lora.is_used())
    result.refusals.push_back("no LoRA is written for " + tool +
                              ", and the plan trains adapters of rank " +
                              std::to_string(facts.model->lora.rank) + " alone");
  if (facts.model) return;
  result.refusals.push_back(
      tool +
      " is given decoder-only transformers of GPT's style and those of an architecture.json, and "
      "the plan's model is neither" +
      (facts.foreign_layer.empty() ? "" : ": its layer " + facts.foreign_layer));
}

void note_lora(const PlanFacts& facts, ExportedPlan& result) {
  if (!facts.model || !facts.model->lora.is_used()) return;
  result.notes.push_back("the model's code has to add the adapters of rank " +
                         std::to_string(facts.model->lora.rank) + " (LoRA) and freeze the rest");
}

void require_one_recompute(const PlanFacts& facts, const std::string& tool, ExportedPlan& result) {
  if (facts.recompute) return;
  result.refusals.push_back(tool +
                            " recomputes all blocks alike, and the plan does not; tune with "
                            "strategy.recompute none, selective or full, or give "
                            "training.recompute so");
}

}  // namespace pipewright::planner
