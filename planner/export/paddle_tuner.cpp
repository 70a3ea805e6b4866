// PaddlePaddle's auto tuner (python -m paddle.distributed.launch --auto_tuner_json FILE): its job
// with the plan's values alone to try (distributed/auto_tuner/utils.py, prune.py).
#include <algorithm>

#include "planner/export/paddle_facts.hpp"

namespace pipewright::planner {
namespace {

void refuse_for_paddle_tuner(const PlanFacts& facts, ExportedPlan& result) {
  require_transformer(facts, "Paddle's auto tuner", result);
  require_all_sharded(facts, "Paddle's auto tuner", result);
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

/// distributed/auto_tuner/prune.py drops these before it starts anything, and the plan is its only
/// candidate.
void refuse_what_is_pruned(const PlanFacts& facts, const Plan& plan, ExportedPlan& result) {
  const Architecture& model = *facts.model;
  const auto prune = [&](bool pruned, const std::string& what) {
    if (pruned) result.refusals.push_back("Paddle's auto tuner prunes " + what);
  };
  const int stages = facts.pipeline * (facts.pipeline > 1 ? facts.chunks : 1);
  prune(model.blocks % stages != 0, std::to_string(model.blocks) + " blocks over " +
                                        std::to_string(stages) +
                                        " stages, which do not divide them");
  prune(plan.micro_batches < facts.pipeline,
        "fewer micro-batches (" + std::to_string(plan.micro_batches) + ") than ranks (" +
            std::to_string(facts.pipeline) + ")");
  prune(facts.chunks > 1 && plan.micro_batches % facts.pipeline != 0,
        "chunks where the ranks do not divide the micro-batches");
  prune(model.hidden % facts.tensor != 0 || model.heads % facts.tensor != 0,
        "tp that does not divide the width and the heads");
}

/// The tuner looks up its candidates in these, so that a single number ends it with a TypeError.
Json candidate(int value) { return Json::array({value}); }

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

/// The tuner's nodes have equally many GPUs, all of them in use.
int devices_of_a_node(const PlanFacts& facts, const Cluster& cluster) {
  int devices = std::min(cluster.devices_per_node, facts.devices());
  while (facts.devices() % devices != 0) --devices;
  return devices;
}

}  // namespace

ExportedPlan export_paddle_tuner(const Plan& plan) {
  const PlanFacts facts = facts_of(plan);
  ExportedPlan result;
  refuse_for_paddle_tuner(facts, result);
  if (result.refusals.empty()) refuse_what_is_pruned(facts, plan, result);
  if (!result.refusals.empty()) return result;
  const bool sharded = facts.zero > 0;
  const int a_node = devices_of_a_node(facts, plan.cluster);
  Json document = {{"dp_degree", candidate(sharded ? 1 : facts.data)},
                   {"mp_degree", candidate(facts.tensor)},
                   {"pp_degree", candidate(facts.pipeline)},
                   {"vpp_degree", candidate(facts.pipeline > 1 ? facts.chunks : 1)},
                   {"sharding_degree", candidate(sharded ? facts.data : 1)},
                   {"sharding_stage", candidate(sharded ? facts.zero : 1)},
                   {"micro_batch_size", candidate(plan.micro_batch_size)},
                   {"use_recompute", facts.recompute != LayerRecompute::None}};
  // Without recomputation too: the tuner prunes that unless the granularity is "full".
  document["recompute_granularity"] =
      facts.recompute == LayerRecompute::Attention ? "core_attn" : "full";
  document["use_sequence_parallel"] = facts.sequence_parallel && facts.tensor > 1;
  document["task_limit"] = 1;
  // Its own limits of these degrees by the number of nodes would leave the plan out.
  document["enable_pp_prune"] = false;
  document["enable_mp_prune"] = false;
  document["search_algo"] = {{"name", "grid"}};
  document["nodes"] = facts.devices() / a_node;
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
  if (facts.model->vocabulary % facts.tensor != 0) {
    result.notes.push_back("tp " + std::to_string(facts.tensor) + " does not divide the " +
                           std::to_string(facts.model->vocabulary) +
                           " words, which the tuner prunes: give vocab_size as your training pads "
                           "it");
  }
  note_uneven_stages(facts, result);
  result.text = to_text(document);
  return result;
}

}  // namespace pipewright::planner
