// torchtitan: the tables of a job's TOML
// (torchtitan/config/job_config.py at version 0.2, the last whose jobs are TOML).
#include <array>
#include <cstdio>
#include <utility>

#include "planner/export/plan_facts.hpp"
#include "planner/export/rank_order.hpp"

namespace pipewright::planner {
namespace {

constexpr std::string_view kTool = "torchtitan";

/// Classes of torch.distributed.pipelining whose orders these are (tests/golden compares them).
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kSchedules{{
    {"1f1b", "1F1B"},
    {"gpipe", "GPipe"},
    {"interleaved", "Interleaved1F1B"},
    {"looped-bfs", "LoopedBFS"},
    {"interleaved-zb", "InterleavedZeroBubble"},
    {"zbv", "ZBVZeroBubble"},
    {"dualpipev", "DualPipeV"},
}};

std::string_view class_of(std::string_view schedule) {
  for (const auto& [ours, theirs] : kSchedules) {
    if (ours == schedule) return theirs;
  }
  return {};
}

bool in_a_loop(const Plan& plan) {
  for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
    if (plan.stages[stage].rank.value != static_cast<int>(stage) % plan.ranks()) return false;
  }
  return true;
}

void refuse(const PlanFacts& facts, const Plan& plan, ExportedPlan& result) {
  require_transformer(facts, std::string(kTool), result);
  require_one_recompute(facts, std::string(kTool), result);
  if (facts.pipeline > 1 && class_of(facts.schedule).empty() && !in_a_loop(plan)) {
    result.refusals.push_back(
        "torchtitan loads an order of one's own only where stage s is on "
        "rank s mod the ranks; the plan's schedule " +
        facts.schedule + " puts stages elsewhere");
  }
  if (plan.training.optimizer != "adamw") {
    result.refusals.push_back("torchtitan has Adam and AdamW; the plan's optimizer is " +
                              plan.training.optimizer);
  }
}

void line(std::string& text, const std::string& key, const std::string& value) {
  text += key + " = " + value + "\n";
}
void line(std::string& text, const std::string& key, int value) {
  line(text, key, std::to_string(value));
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

/// One list of modules for each stage, by the names of torchtitan's Llama 3.
std::string modules_of(const std::vector<StageBlocks>& stages) {
  std::string text = "[\n";
  for (const StageBlocks& stage : stages) {
    std::string names = stage.embedding ? "\"tok_embeddings\"" : "";
    for (int block = stage.first_block; block < stage.first_block + stage.blocks; ++block) {
      names += (names.empty() ? "" : ", ") + ("\"layers." + std::to_string(block) + "\"");
    }
    if (stage.head) names += std::string(names.empty() ? "" : ", ") + "\"norm\", \"output\"";
    text += "  [" + names + "],\n";
  }
  return text + "]";
}

/// torchtitan has replicas (0), weights sharded but kept after their first use (2) or not (3).
void add_data_parallelism(const PlanFacts& facts, std::string& text, ExportedPlan& result) {
  const bool alone = facts.tensor * facts.pipeline * facts.context * facts.experts == 1;
  const bool replicas = facts.zero == 0 && (alone || facts.data == 1);
  line(text, "data_parallel_replicate_degree", replicas ? facts.data : 1);
  line(text, "data_parallel_shard_degree", replicas ? 1 : facts.data);
  if (replicas) return;
  line(text, "fsdp_reshard_after_forward", facts.zero == 3 ? "\"always\"" : "\"never\"");
  if (facts.zero == 0) {
    result.notes.push_back(
        "torchtitan does not replicate weights beside other kinds of parallelism, so they are "
        "sharded and kept after their first use (nearest to ZeRO 2): less memory than planned");
  }
  if (facts.zero == 1) {
    result.notes.push_back(
        "torchtitan shards gradients and weights where it shards the optimizer; kept after their "
        "first use that is nearest to ZeRO 1");
  }
}

void add_pipeline(const PlanFacts& facts, const Plan& plan, std::string& text,
                  ExportedPlan& result) {
  line(text, "pipeline_parallel_degree", facts.pipeline);
  if (facts.pipeline == 1) return;
  const std::string_view name = class_of(facts.schedule);
  if (!name.empty()) {
    line(text, "pipeline_parallel_schedule", "\"" + std::string(name) + "\"");
  } else {
    line(text, "pipeline_parallel_schedule", "\"PipelineScheduleMulti\"");
    line(text, "pipeline_parallel_schedule_csv", "\"schedule.csv\"");
    result.notes.push_back("PyTorch has no schedule " + facts.schedule +
                           ": write its order with --format pytorch-csv -o schedule.csv");
  }
  line(text, "pipeline_parallel_microbatch_size", plan.micro_batch_size);
  line(text, "module_fqns_per_model_part", modules_of(facts.stages));
}

std::string_view mode_of(LayerRecompute recompute) {
  if (recompute == LayerRecompute::Whole) return "\"full\"";
  return recompute == LayerRecompute::Attention ? "\"selective\"" : "\"none\"";
}

void add_training(const PlanFacts& facts, const Plan& plan, std::string& text) {
  // Without a pipeline torchtitan accumulates gradients over global / (local * replicas) steps.
  const int local = facts.pipeline > 1 ? plan.micro_batches * plan.micro_batch_size  //
                                       : plan.micro_batch_size;
  line(text, "local_batch_size", local);
  line(text, "global_batch_size", facts.global_batch);
  line(text, "seq_len", facts.model->sequence);
  line(text, "steps", plan.training.steps);
  // torchtitan always clips; a norm that no gradient reaches is as good as not to.
  line(text, "max_norm",
       plan.training.clip_grad_norm > 0 ? number_text(plan.training.clip_grad_norm) : "1e9");
  if (plan.model.bytes_per_element == 2) line(text, "mixed_precision_param", "\"bfloat16\"");
}

void add_notes(const PlanFacts& facts, ExportedPlan& result) {
  result.notes.push_back("the model is torchtitan's: set [model] name and flavor to one with " +
                         std::to_string(facts.model->blocks) + " layers of width " +
                         std::to_string(facts.model->hidden));
  if (facts.tensor > 1 && !facts.sequence_parallel) {
    result.notes.push_back(
        "torchtitan's tensor parallelism is always sequence parallel: less memory than planned");
  }
  if (facts.recompute == LayerRecompute::Attention) {
    result.notes.push_back(
        "selective, by operation, is nearest to recomputing attention; torchtitan decides itself "
        "which operations it keeps");
  }
}

}  // namespace

ExportedPlan export_torchtitan(const Plan& plan) {
  const PlanFacts facts = facts_of(plan);
  ExportedPlan result;
  refuse(facts, plan, result);
  if (!result.refusals.empty()) return result;
  std::string optimizer, training, parallelism, recompute;
  line(optimizer, "name", "\"AdamW\"");
  line(optimizer, "lr", number_text(plan.training.learning_rate));
  add_training(facts, plan, training);
  add_data_parallelism(facts, parallelism, result);
  line(parallelism, "tensor_parallel_degree", facts.tensor);
  line(parallelism, "context_parallel_degree", facts.context);
  line(parallelism, "expert_parallel_degree", facts.experts);
  add_pipeline(facts, plan, parallelism, result);
  line(recompute, "mode", std::string(mode_of(*facts.recompute)));
  if (facts.recompute == LayerRecompute::Attention) {
    line(recompute, "selective_ac_option", "\"op\"");
  }
  add_notes(facts, result);
  // torchtitan/distributed/parallel_dims.py: its mesh is pp, dp_replicate, dp_shard, cp, tp.
  note_rank_order(plan, "torchtitan", false,
                  "no field changes that, so neighbours of the pipeline are further apart than "
                  "planned",
                  result);
  result.text = "# For torchtitan 0.2 on " + std::to_string(facts.devices()) + " devices.\n";
  for (const std::string& note : result.notes) result.text += "# " + note + "\n";
  result.text += "\n[optimizer]\n" + optimizer + "\n[training]\n" + training + "\n[parallelism]\n" +
                 parallelism + "\n[activation_checkpoint]\n" + recompute;
  return result;
}

}  // namespace pipewright::planner
