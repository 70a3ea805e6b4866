// Megatron-LM: flags of its training scripts (megatron/training/arguments.py) as the bash arrays of
// its examples, to be sourced.
#include <cstdlib>

#include "planner/export/megatron_layout.hpp"
#include "planner/export/plan_facts.hpp"
#include "planner/schedules/rounds.hpp"

namespace pipewright::planner {
namespace {

/// Lines of the array.
struct MegatronFlags {
  std::string text;

  void add(const std::string& flag) { text += "  --" + flag + "\n"; }
  void add(const std::string& flag, int value) { add(flag + " " + std::to_string(value)); }
  void add_above(const std::string& flag, int value, int usual) {
    if (value > usual) add(flag, value);
  }
};

/// Micro-batches that go through a chunk before the next chunk's turn.
int megatron_group_of(const Plan& plan) {
  const auto given = plan.schedule.parameters.find("group");
  if (given != plan.schedule.parameters.end()) return std::atoi(given->second.c_str());
  ScheduleRequest request;
  request.ranks = plan.ranks();
  request.micro_batches = plan.micro_batches;
  return equal_round(request);
}

void refuse_for_megatron(const PlanFacts& facts, const Plan& plan, ExportedPlan& result) {
  require_transformer(facts, "Megatron-LM", result);
  require_one_recompute(facts, "Megatron-LM", result);
  const std::string& name = facts.schedule;
  if (facts.pipeline > 1 && name != "1f1b" && name != "interleaved") {
    result.refusals.push_back("Megatron-LM runs 1f1b and interleaved; the plan's schedule is " +
                              name + "; tune with these in strategy.schedule_mode");
  }
  if (facts.pipeline > 1 && facts.chunks > 1 && megatron_group_of(plan) < facts.pipeline) {
    result.refusals.push_back(
        "Megatron-LM interleaves groups of at least as many micro-batches "
        "as ranks; the plan has " +
        std::to_string(plan.micro_batches) + " on " + std::to_string(facts.pipeline) + " ranks");
  }
  require_all_sharded(facts, "Megatron-LM", result);
  if (facts.pipeline > 1 && facts.zero > 1) {
    result.refusals.push_back("Megatron-LM shards gradients and weights (ZeRO " +
                              std::to_string(facts.zero) +
                              ") only without a pipeline; take sharding stage 1");
  }
  // megatron/core/parallel_state.py, whose ranks of experts then have as many replicas as others.
  if (plan.mesh.has_pipeline_inside_data() &&
      facts.tensor * facts.context != facts.expert_tensor * facts.experts) {
    result.refusals.push_back(
        "Megatron-LM puts replicas outermost only where experts are divided among as many ranks as "
        "the rest, tp * cp; the plan has cp " +
        std::to_string(facts.context) + " and ep " + std::to_string(facts.experts) +
        ", tune with rank_order tp-cp-dp-pp");
  }
  if (facts.pipeline > 1 && facts.model && !facts.model->pattern.empty()) {
    result.refusals.push_back(
        "Megatron-LM lays the stages of a hybrid out by its pattern, which this format does not "
        "write; take pp = 1");
  }
  for (const StageBlocks& stage : facts.stages) {
    if (stage.embedding || stage.head || stage.blocks > 0) continue;
    result.refusals.push_back("Megatron-LM hangs where a stage of the layout is empty");
    break;
  }
  if (plan.training.optimizer != "adamw" && plan.training.optimizer != "sgd") {
    result.refusals.push_back("Megatron-LM has adam and sgd; the plan's optimizer is " +
                              plan.training.optimizer);
  }
}

void add_parallelism(const PlanFacts& facts, const Plan& plan, MegatronFlags& flags) {
  flags.add("tensor-model-parallel-size", facts.tensor);
  flags.add("pipeline-model-parallel-size", facts.pipeline);
  flags.add_above("context-parallel-size", facts.context, 1);
  if (!facts.cp_comm_type.empty()) flags.add("cp-comm-type " + facts.cp_comm_type);
  flags.add_above("expert-model-parallel-size", facts.experts, 1);
  if (facts.expert_tensor != facts.tensor)
    flags.add("expert-tensor-parallel-size", facts.expert_tensor);
  if (facts.sequence_parallel && facts.tensor > 1) flags.add("sequence-parallel");
  if (facts.pipeline > 1) {
    std::string layout = megatron_layout(facts.stages);  // its last letter is the loss, L
    layout.insert(layout.size() - 1, static_cast<std::size_t>(facts.model->further_tokens), 'm');
    flags.add("pipeline-model-parallel-layout '" + layout + "'");
  }
  if (facts.pipeline > 1 && facts.chunks > 1 && megatron_group_of(plan) != facts.pipeline) {
    flags.add("microbatch-group-size-per-virtual-pipeline-stage", megatron_group_of(plan));
  }
  if (facts.zero == 1) flags.add("use-distributed-optimizer");
  if (facts.zero > 1) {
    flags.add("use-megatron-fsdp");
    flags.add(std::string("data-parallel-sharding-strategy ") +
              (facts.zero == 2 ? "optim_grads" : "optim_grads_params"));
    flags.add("use-distributed-optimizer");
    flags.add("no-gradient-accumulation-fusion");
    flags.add("ckpt-format fsdp_dtensor");
  }
  if (facts.recompute == LayerRecompute::Attention) flags.add("recompute-granularity selective");
  if (facts.recompute == LayerRecompute::Whole) {
    flags.add("recompute-granularity full");
    flags.add("recompute-method uniform");
    flags.add("recompute-num-layers", 1);
  }
}

void add_megatron_training(const PlanFacts& facts, const Plan& plan, MegatronFlags& flags) {
  flags.add("micro-batch-size", plan.micro_batch_size);
  flags.add("global-batch-size", facts.global_batch);
  const TrainingSpec& training = plan.training;
  if (training.steps_given) flags.add("train-iters", training.steps);
  flags.add(std::string("optimizer ") + (training.optimizer == "sgd" ? "sgd" : "adam"));
  if (training.learning_rate_given) flags.add("lr " + number_text(training.learning_rate));
  if (clips_or_says_no(training)) flags.add("clip-grad " + number_text(training.clip_grad_norm));
  if (plan.model.bytes_per_element == 2) flags.add("bf16");
}

void add_attention(const Architecture& model, MegatronFlags& flags) {
  flags.add("num-attention-heads", model.heads);
  if (model.key_value_heads < model.heads && model.latent.key_value_rank == 0) {
    flags.add("group-query-attention");
    flags.add("num-query-groups", model.key_value_heads);
  }
  if (model.latent.key_value_rank > 0) {
    flags.add("multi-latent-attention");
    flags.add_above("q-lora-rank", model.latent.query_rank, 0);
    flags.add("kv-lora-rank", model.latent.key_value_rank);
    flags.add("qk-head-dim", model.latent.plain);
    flags.add("qk-pos-emb-head-dim", model.latent.rotary);
    flags.add("v-head-dim", model.latent.value);
  } else if (model.head * model.heads != model.hidden) {
    flags.add("kv-channels", model.head);
  }
  if (model.window.tokens == 0) return;
  flags.add("window-size " + std::to_string(model.window.tokens) + ",0");
  flags.add_above("window-attn-skip-freq", model.window.full_every, 0);
}

void add_experts(const Architecture& model, MegatronFlags& flags) {
  if (model.experts.count == 0) return;
  flags.add("num-experts", model.experts.count);
  flags.add("moe-router-topk", model.experts.chosen);
  flags.add("moe-ffn-hidden-size", model.experts.ffn);
  flags.add_above("moe-shared-expert-intermediate-size", model.experts.shared_ffn, 0);
  flags.add_above("moe-latent-size", model.experts.latent, 0);
  if (model.experts.every > 1 && model.pattern.empty()) {
    std::string list;
    for (int block = 0; block < model.blocks; ++block)
      list +=
          std::string(list.empty() ? "" : ",") + (model.kind_of(block).has_experts() ? "1" : "0");
    flags.add("moe-layer-freq '[" + list + "]'");
  } else if (model.experts.dense_blocks > 0) {
    flags.add("moe-layer-freq '([0]*" + std::to_string(model.experts.dense_blocks) + "+[1]*" +
              std::to_string(model.blocks - model.experts.dense_blocks) + ")'");
  }
}

/// What Megatron-LM's pretrain_mamba.py takes beside the others.
void add_hybrid(const Architecture& model, MegatronFlags& flags) {
  if (model.pattern.empty()) return;
  flags.add("is-hybrid-model");
  flags.add("hybrid-override-pattern '" + model.pattern + "'");
  if (!model.mamba.is_used()) return;
  flags.add("mamba-num-heads", model.mamba.heads);
  flags.add("mamba-head-dim", model.mamba.head);
  flags.add("mamba-state-dim", model.mamba.state);
  flags.add("mamba-num-groups", model.mamba.groups);
}

void add_model(const Architecture& model, MegatronFlags& flags) {
  flags.add("num-layers", model.blocks);
  flags.add("hidden-size", model.hidden);
  flags.add("ffn-hidden-size", model.ffn);
  add_attention(model, flags);
  add_experts(model, flags);
  add_hybrid(model, flags);
  flags.add_above("mtp-num-layers", model.further_tokens, 0);
  flags.add("seq-length", model.sequence);
  flags.add("max-position-embeddings", model.sequence);
  flags.add(std::string("position-embedding-type ") +
            (model.learned_positions ? "learned_absolute" : "rope"));
  if (model.gated) flags.add("swiglu");
  if (!model.biases) {
    flags.add("disable-bias-linear");
    flags.add("normalization RMSNorm");  // a norm without a shift
  }
  if (!model.tied_head) flags.add("untie-embeddings-and-output-weights");
}

/// What its scripts need, or do on their own, and the job does not say.
void note_what_is_missing(const PlanFacts& facts, const TrainingSpec& training,
                          ExportedPlan& result) {
  if (!training.learning_rate_given) {
    result.notes.push_back("the job gives no learning_rate: add --lr and its schedule");
  }
  if (!training.steps_given) {
    result.notes.push_back("the job does not say how long it trains: add --train-iters");
  }
  if (!clips_or_says_no(training)) {
    result.notes.push_back(
        "the job gives no clip_grad_norm, and Megatron-LM clips gradients at norm 1: --clip-grad 0 "
        "is not to clip");
  }
  if (!facts.model->pattern.empty()) {
    result.notes.push_back(
        "a hybrid is trained by pretrain_mamba.py: add --spec "
        "megatron.core.models.mamba.mamba_layer_specs mamba_stack_spec");
  }
  if (!facts.model->learned_positions) {
    result.notes.push_back(
        "the plan does not have the base of the rotary positions; Megatron-LM takes 10000 unless "
        "--rotary-base says otherwise (Llama 3: 500000)");
  }
}

/// Where Megatron-LM puts ranks otherwise than the mesh does.
void place_ranks(const Plan& plan, MegatronFlags& flags, ExportedPlan& result) {
  bool in_order = true;
  for (std::size_t k = 0; k < plan.mesh.devices.size(); ++k) {
    in_order = in_order && plan.mesh.devices[k] == static_cast<int>(k);
  }
  // Its own order varies tp, cp, ep, dp, pp, the first fastest; this flag makes it tp, pp, dp.
  if (plan.mesh.has_pipeline_inside_data()) flags.add("use-tp-pp-dp-mapping");
  if (in_order) return;
  result.notes.push_back(
      "the plan puts ranks on devices in an order of its own, which Megatron-LM has no flag for: "
      "list the hosts in the order of the plan's mesh.devices");
}

}  // namespace

ExportedPlan export_megatron(const Plan& plan) {
  const PlanFacts facts = facts_of(plan);
  ExportedPlan result;
  refuse_for_megatron(facts, plan, result);
  if (!result.refusals.empty()) return result;
  MegatronFlags parallel, training, model;
  add_parallelism(facts, plan, parallel);
  place_ranks(plan, parallel, result);
  add_megatron_training(facts, plan, training);
  add_model(*facts.model, model);
  result.notes.push_back("the vocabulary comes from Megatron-LM's tokenizer; the plan counts " +
                         std::to_string(facts.model->vocabulary) + " words");
  note_what_is_missing(facts, plan.training, result);
  if (facts.pipeline > 1 && facts.zero == 1) {
    result.notes.push_back(
        "gradients are reduced after the last micro-batch; --overlap-grad-reduce and "
        "--overlap-param-gather may be added");
  }
  result.text = "# Flags of Megatron-LM core 0.16 for " + std::to_string(facts.devices()) +
                " devices: source this file, then\n#   torchrun ... pretrain_gpt.py "
                "\"${PARALLEL_ARGS[@]}\" \"${TRAINING_ARGS[@]}\" \"${MODEL_ARGS[@]}\"\n";
  for (const std::string& note : result.notes) result.text += "# " + note + "\n";
  result.text += "PARALLEL_ARGS=(\n" + parallel.text + ")\nTRAINING_ARGS=(\n" + training.text +
                 ")\nMODEL_ARGS=(\n" + model.text + ")\n";
  return result;
}

}  // namespace pipewright::planner
