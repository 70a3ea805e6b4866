// DeepSpeed: the JSON that deepspeed.initialize() reads (deepspeed.ai/docs/config-json, and
// runtime/config.py for "pipeline").
#include "planner/export/plan_facts.hpp"
#include "planner/export/rank_order.hpp"

namespace pipewright::planner {
namespace {

void refuse_for_deepspeed(const PlanFacts& facts, ExportedPlan& result) {
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
  if (facts.context > 1) {
    result.refusals.push_back(
        "DeepSpeed has no ring of context parallel ranks (Ulysses exchanges heads instead); take "
        "cp 1");
  }
}

Json pipeline_of(const PlanFacts& facts, ExportedPlan& result) {
  Json pipeline = {{"stages", facts.pipeline}};
  if (!facts.stages.empty() && evenly_cut(facts)) {
    pipeline["partition"] = "uniform";
  } else if (!facts.stages.empty()) {
    result.notes.push_back(
        "DeepSpeed cuts layers uniformly, by parameters or by type, not as told; the plan's "
        "stages are " +
        describe(facts.stages));
  }
  pipeline["activation_checkpoint_interval"] = facts.recompute == LayerRecompute::Whole ? 1 : 0;
  result.notes.push_back(
      "PipelineModule takes its own arguments: num_stages=" + std::to_string(facts.pipeline) +
      " and activation_checkpoint_interval as in \"pipeline\"");
  return pipeline;
}

void add_tensor_parallelism(const PlanFacts& facts, Json& document, ExportedPlan& result) {
  if (facts.tensor == 1) return;
  if (facts.pipeline == 1 && facts.zero < 3) {
    document["tensor_parallel"] = {{"autotp_size", facts.tensor}};
    return;
  }
  result.notes.push_back(
      "tensor parallelism of degree " + std::to_string(facts.tensor) +
      " is the model's code here: give deepspeed.initialize an mpu, or a pipeline the topology "
      "PipeModelDataParallelTopology");
}

void add_deepspeed_notes(const PlanFacts& facts, ExportedPlan& result) {
  if (facts.experts > 1) {
    result.notes.push_back(
        "expert parallelism is an argument of deepspeed.moe.layer.MoE: ep_size=" +
        std::to_string(facts.experts));
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
  refuse_for_deepspeed(facts, result);
  if (!result.refusals.empty()) return result;
  Json document = {{"train_batch_size", facts.global_batch},
                   {"train_micro_batch_size_per_gpu", plan.micro_batch_size},
                   {"gradient_accumulation_steps", plan.micro_batches},
                   {"zero_optimization", {{"stage", facts.zero}}}};
  if (facts.pipeline > 1) document["pipeline"] = pipeline_of(facts, result);
  add_tensor_parallelism(facts, document, result);
  document["optimizer"] = {{"type", plan.training.optimizer == "sgd" ? "SGD" : "AdamW"}};
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
  // deepspeed/runtime/pipe/topology.py: axes pipe, data, model.
  if (facts.pipeline > 1) {
    note_rank_order(plan, "DeepSpeed", false,
                    "give PipelineModule a topology of the axes data, pipe, model", result);
  }
  result.text = to_text(document);
  return result;
}

}  // namespace pipewright::planner
