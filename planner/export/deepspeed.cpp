// DeepSpeed: the JSON that deepspeed.initialize() reads (runtime/config.py), and beside it, in a
// field that DeepSpeed passes over, what a PipelineModule is constructed with: of its configuration
// it takes neither the number of stages nor their bounds (runtime/pipe/module.py).
#include "core/model/find_layer.hpp"
#include "planner/export/plan_facts.hpp"
#include "planner/export/rank_order.hpp"

namespace pipewright::planner {
namespace {

void refuse_for_deepspeed(const Plan& plan, const PlanFacts& facts, ExportedPlan& result) {
  require_one_recompute(facts, "DeepSpeed", result);
  require_all_sharded(facts, "DeepSpeed", result);
  if (facts.pipeline > 1 && facts.schedule != "1f1b") {
    result.refusals.push_back("DeepSpeed's pipeline engine runs 1f1b; the plan's schedule is " +
                              facts.schedule + "; tune with it in strategy.schedule_mode");
  }
  if (facts.pipeline > 1 && facts.zero > 1) {
    result.refusals.push_back("DeepSpeed's pipeline engine refuses ZeRO 2 and 3; the plan's is " +
                              std::to_string(facts.zero) + ", take sharding stage 1");
  }
  // utils/groups.py deals experts to the ranks of a stage, which it takes to have neighbouring
  // numbers.
  if (facts.experts > 1 && facts.pipeline > 1 && facts.data > 1 &&
      plan.mesh.has_pipeline_inside_data()) {
    result.refusals.push_back(
        "DeepSpeed deals experts to ranks of neighbouring numbers, and the plan's replicas are "
        "outermost; take rank_order tp-cp-dp-pp");
  }
  if (facts.context > 1) {
    result.refusals.push_back(
        "DeepSpeed has no ring of context parallel ranks (Ulysses exchanges heads instead); take "
        "cp 1");
  }
}

/// The axes of the plan's mesh by DeepSpeed's names, the last one fastest, as ProcessTopology takes
/// them.
Json topology_of(const Plan& plan) {
  Json topology = {{"axes", Json::array()}, {"dims", Json::array()}};
  const bool inside = plan.mesh.has_pipeline_inside_data();
  for (const char* axis : {inside ? "dp" : "pp", inside ? "pp" : "dp", "tp"}) {
    const std::string name = axis;
    topology["axes"].push_back(name == "pp" ? "pipe" : name == "dp" ? "data" : "model");
    topology["dims"].push_back(plan.mesh.size(name));
  }
  return topology;
}

/// Stage s has the layers [parts[s], parts[s + 1]).
Json stage_bounds(const Plan& plan) {
  Json parts = {0};
  for (const StagePlan& stage : plan.stages) parts.push_back(stage.end_layer);
  return parts;
}

void add_pipeline_notes(const Plan& plan, const PlanFacts& facts, ExportedPlan& result) {
  result.notes.push_back(
      "PipelineModule is constructed with the topology in \"pipewright\"; DeepSpeed reads no "
      "stages of this file");
  if (!facts.stages.empty() && evenly_cut(facts)) {
    result.notes.push_back(
        "PipelineModule cuts layers by parameters unless told otherwise: "
        "partition_method=\"type:\" "
        "with the class of the blocks gives the plan's stages, one layer for the embedding and one "
        "for the norm and the head");
  } else {
    const std::string stages = facts.stages.empty() ? "" : ", " + describe(facts.stages);
    result.notes.push_back(
        "PipelineModule cuts layers uniformly, by parameters or by type, not as told: give the "
        "plan's stages" +
        stages + ", by a class of your own that takes \"parts\" (docs/exporting.md)");
  }
  if (find_layer(plan.model, [](const Layer& layer) { return layer.tied; })) {
    result.notes.push_back(
        "the head takes the embedding's weights: both are a TiedLayerSpec of one key");
  }
}

void write_pipeline(const Plan& plan, const PlanFacts& facts, Json& document,
                    ExportedPlan& result) {
  if (facts.pipeline == 1) return;
  document["pipeline"] = {
      {"stages", facts.pipeline},
      {"activation_checkpoint_interval", facts.recompute == LayerRecompute::Whole ? 1 : 0}};
  document["pipewright"]["topology"] = topology_of(plan);
  document["pipewright"]["parts"] = stage_bounds(plan);
  add_pipeline_notes(plan, facts, result);
}

void add_tensor_parallelism(const PlanFacts& facts, Json& document, ExportedPlan& result) {
  if (facts.tensor == 1) return;
  if (facts.pipeline == 1) {
    document["tensor_parallel"] = {{"autotp_size", facts.tensor}};
    // runtime/config.py compares it with the micro-batches of all ranks, those along tp too.
    document.erase("train_batch_size");
    result.notes.push_back(
        "DeepSpeed counts tensor parallel ranks as replicas in its train_batch_size, which is left "
        "out; a step has " +
        std::to_string(facts.global_batch) + " samples");
    return;
  }
  result.notes.push_back("tensor parallelism of degree " + std::to_string(facts.tensor) +
                         " is the code of a pipeline's layers, along the topology's axis model");
}

void add_deepspeed_notes(const PlanFacts& facts, ExportedPlan& result) {
  if (facts.experts > 1) {
    result.notes.push_back(
        "expert parallelism is an argument of deepspeed.moe.layer.MoE: ep_size=" +
        std::to_string(facts.experts) +
        (facts.tensor == 1         ? ""
         : facts.expert_tensor > 1 ? ", enable_expert_tensor_parallelism=True"
                                   : ", enable_expert_tensor_parallelism=False"));
  }
  if (facts.sequence_parallel && facts.tensor > 1) {
    result.notes.push_back("sequence parallelism is the model's code in DeepSpeed, not a field");
  }
  if (facts.recompute == LayerRecompute::Attention) {
    result.notes.push_back(
        "DeepSpeed checkpoints whole layers; the model's code has to recompute attention alone");
  } else if (facts.recompute == LayerRecompute::Whole && facts.pipeline == 1) {
    result.notes.push_back(
        "the model's code has to call deepspeed.checkpointing.checkpoint on every block");
  }
}

}  // namespace

ExportedPlan export_deepspeed(const Plan& plan) {
  const PlanFacts facts = facts_of(plan);
  ExportedPlan result;
  refuse_for_deepspeed(plan, facts, result);
  if (!result.refusals.empty()) return result;
  note_lora(facts, result);
  Json document = {{"pipewright", {{"for", "DeepSpeed 0.19"}}},
                   {"train_batch_size", facts.global_batch},
                   {"train_micro_batch_size_per_gpu", plan.micro_batch_size},
                   {"gradient_accumulation_steps", plan.micro_batches},
                   {"zero_optimization", {{"stage", facts.zero}}}};
  write_pipeline(plan, facts, document, result);
  add_tensor_parallelism(facts, document, result);
  const bool sgd = plan.training.optimizer == "sgd";
  document["optimizer"] = {{"type", sgd ? "SGD" : "AdamW"}};
  // ZeRO refuses optimizers that are not DeepSpeed's own unless told so; this one it divides too.
  if (sgd && facts.zero > 0) document["zero_allow_untested_optimizer"] = true;
  if (plan.training.learning_rate_given) {
    document["optimizer"]["params"] = {{"lr", plan.training.learning_rate}};
  } else {
    result.notes.push_back(
        "the job gives no learning_rate: set optimizer.params.lr, or DeepSpeed takes its "
        "optimizer's own");
  }
  // Left out, it is not clipped.
  if (clips_or_says_no(plan.training)) document["gradient_clipping"] = plan.training.clip_grad_norm;
  if (plan.model.bytes_per_element == 2) document["bf16"] = {{"enabled", true}};
  add_deepspeed_notes(facts, result);
  // runtime/pipe/topology.py: axes pipe, data, model.
  if (facts.pipeline > 1) {
    note_rank_order(plan, "DeepSpeed", false, "PipelineModule needs the topology in \"pipewright\"",
                    result);
  }
  result.text = to_text(document);
  return result;
}

}  // namespace pipewright::planner
