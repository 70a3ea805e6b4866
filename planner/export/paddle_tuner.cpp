// PaddlePaddle's auto tuner (python -m paddle.distributed.launch --auto_tuner_json FILE): its job
// with the plan's values alone to try (distributed/auto_tuner/utils.py, prune.py).
#include <algorithm>

#include "planner/export/paddle_facts.hpp"

namespace pipewright::planner {
namespace {

void refuse(const PlanFacts& facts, ExportedPlan& result) {
  require_transformer(facts, "Paddle's auto tuner", result);
  refuse_for_paddle(facts, result);
  if (facts.pipeline > 1 && facts.zero > 1) {
    result.refusals.push_back(
        "Paddle's auto tuner prunes sharding stages above 1 with a pipeline; take sharding stage "
        "1");
  }
  if (facts.pipeline > 1 && facts.chunks > 1 && facts.pipeline <= 2) {
    result.refusals.push_back(
        "Paddle's auto tuner prunes several chunks a rank on 2 ranks or fewer; take vpp 1");
  }
}

Json model_of(const PlanFacts& facts) {
  const Architecture& model = *facts.model;
  return {{"hidden_size", model.hidden},
          {"global_batch_size", facts.global_batch},
          {"num_layers", model.blocks},
          {"num_attention_heads", model.heads},
          {"vocab_size", model.vocabulary},
          {"seq_length", model.sequence},
          {"max_sequence_length", model.sequence},
          {"intermediate_size", model.ffn}};
}

}  // namespace

ExportedPlan export_paddle_tuner(const Plan& plan) {
  const PlanFacts facts = facts_of(plan);
  ExportedPlan result;
  refuse(facts, result);
  if (!result.refusals.empty()) return result;
  const bool sharded = facts.zero > 0;
  const int a_node = std::min(plan.cluster.devices_per_node, facts.devices());
  Json document = {{"dp_degree", sharded ? 1 : facts.data},
                   {"mp_degree", facts.tensor},
                   {"pp_degree", facts.pipeline},
                   {"vpp_degree", facts.pipeline > 1 ? facts.chunks : 1},
                   {"sharding_degree", sharded ? facts.data : 1},
                   {"sharding_stage", sharded ? facts.zero : 1},
                   {"micro_batch_size", plan.micro_batch_size},
                   {"use_recompute", facts.recompute != LayerRecompute::None}};
  if (facts.recompute != LayerRecompute::None) {
    document["recompute_granularity"] =
        facts.recompute == LayerRecompute::Whole ? "full" : "core_attn";
  }
  document["use_sequence_parallel"] = facts.sequence_parallel && facts.tensor > 1;
  document["task_limit"] = 1;
  document["search_algo"] = {{"name", "grid"}};
  document["nodes"] = (facts.devices() + a_node - 1) / a_node;
  document["gpus_per_node"] = a_node;
  document["num_gpus"] = facts.devices();
  document["model_cfg"] = model_of(facts);
  result.notes.push_back(
      "the tuner needs run_cmd, the flags and files by which it sets your training's fields, and "
      "metric_cfg; accumulate_steps, " +
      std::to_string(plan.micro_batches) + " here, it computes from global_batch_size");
  if (facts.pipeline > 1 && facts.schedule != "1f1b") {
    result.notes.push_back(
        "the tuner does not set the schedule: give your training pipeline.schedule_mode " +
        std::string(paddle_schedule_mode(facts.schedule)));
  }
  if (facts.model->experts.count > 0 || facts.model->key_value_heads < facts.model->heads) {
    result.notes.push_back(
        "model_cfg has no fields for experts and for key and value heads; your training's "
        "configuration has them");
  }
  note_uneven_stages(facts, result);
  result.text = to_text(document);
  return result;
}

}  // namespace pipewright::planner
