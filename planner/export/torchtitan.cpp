// torchtitan: its command line (torchtitan/config/manager.py and configs.py at version 0.3, which
// has no TOML any more), as a bash array to be sourced.
#include <array>
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

void refuse_for_torchtitan(const PlanFacts& facts, const Plan& plan, ExportedPlan& result) {
  require_transformer(facts, std::string(kTool), result);
  require_one_recompute(facts, std::string(kTool), result);
  if (facts.pipeline > 1 && class_of(facts.schedule).empty() && !in_a_loop(plan)) {
    result.refusals.push_back(
        "torchtitan loads an order of one's own only where stage s is on "
        "rank s mod the ranks; the plan's schedule " +
        facts.schedule + " puts stages elsewhere");
  }
  // torchtitan/distributed/parallel_dims.py: ep takes the place of tensor parallel ranks first.
  if (facts.experts > 1 && facts.expert_tensor > 1) {
    result.refusals.push_back(
        "torchtitan has every expert whole on one rank where ranks divide the experts, and the "
        "plan divides each among " +
        std::to_string(facts.expert_tensor) +
        " too; tune with expert_tensor_parallel_size 1, or take tp 1");
  }
  if (plan.training.optimizer != "adamw") {
    result.refusals.push_back("torchtitan has Adam and AdamW; the plan's optimizer is " +
                              plan.training.optimizer);
  }
}

/// Lines of the array.
struct TorchtitanFlags {
  std::string text;

  void add(const std::string& flag, const std::string& value) {
    text += "  --" + flag + " " + value + "\n";
  }
  void add(const std::string& flag, int value) { add(flag, std::to_string(value)); }
};

/// Its configurations of published models: the plan's name, --module, --config.
struct Published {
  std::string_view ours, module, config;
};
constexpr std::array<Published, 4> kPublished{{
    {"llama3-8b", "llama3", "llama3_8b"},
    {"llama3-70b", "llama3", "llama3_70b"},
    {"llama3-405b", "llama3", "llama3_405b"},
    {"deepseek-v3", "deepseek_v3", "deepseek_v3_671b"},
}};

/// Whether torchtitan has the plan's model, which is then the first of the flags.
bool add_model(const Architecture& model, TorchtitanFlags& flags, ExportedPlan& result) {
  for (const Published& known : kPublished) {
    if (known.ours != model.name) continue;
    flags.text += "  --module " + std::string(known.module) + "\n  --config " +
                  std::string(known.config) + "\n";
    return true;
  }
  result.notes.push_back("the model is torchtitan's: give --module and --config with " +
                         std::to_string(model.blocks) + " layers of width " +
                         std::to_string(model.hidden) + ", before the flags of this file");
  return false;
}

/// One word for each stage, by the names of torchtitan's decoders.
std::string modules_of(const std::vector<StageBlocks>& stages) {
  std::string text;
  for (const StageBlocks& stage : stages) {
    std::string names = stage.embedding ? "tok_embeddings" : "";
    for (int block = stage.first_block; block < stage.first_block + stage.blocks; ++block) {
      names += (names.empty() ? "" : ",") + ("layers." + std::to_string(block));
    }
    if (stage.head) names += std::string(names.empty() ? "" : ",") + "norm,lm_head";
    text += (text.empty() ? "" : " ") + names;
  }
  return text;
}

/// torchtitan has replicas (0), weights sharded but kept after their first use (2) or not (3).
void add_data_parallelism(const PlanFacts& facts, TorchtitanFlags& flags, ExportedPlan& result) {
  const bool alone = facts.tensor * facts.pipeline * facts.context * facts.experts == 1;
  const bool replicas = facts.zero == 0 && (alone || facts.data == 1);
  const int shards = replicas ? 1 : facts.zero > 0 ? facts.shards : facts.data;
  flags.add("parallelism.data_parallel_replicate_degree", facts.data / shards);
  flags.add("parallelism.data_parallel_shard_degree", shards);
  if (replicas) return;
  flags.add("parallelism.fsdp_reshard_after_forward", facts.zero == 3 ? "always" : "never");
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

void add_pipeline(const PlanFacts& facts, const Plan& plan, TorchtitanFlags& flags,
                  ExportedPlan& result) {
  flags.add("parallelism.pipeline_parallel_degree", facts.pipeline);
  if (facts.pipeline == 1) return;
  const std::string_view name = class_of(facts.schedule);
  if (!name.empty()) {
    flags.add("parallelism.pipeline_parallel_schedule", std::string(name));
  } else {
    flags.add("parallelism.pipeline_parallel_schedule", "PipelineScheduleMulti");
    flags.add("parallelism.pipeline_parallel_schedule_csv", "schedule.csv");
    result.notes.push_back("PyTorch has no schedule " + facts.schedule +
                           ": write its order with --format pytorch-csv -o schedule.csv");
  }
  flags.add("parallelism.pipeline_parallel_microbatch_size", plan.micro_batch_size);
  flags.add("parallelism.module_fqns_per_model_part", modules_of(facts.stages));
}

void add_parallelism(const PlanFacts& facts, const Plan& plan, TorchtitanFlags& flags,
                     ExportedPlan& result) {
  // First, because its list of modules takes all words up to the next flag.
  add_pipeline(facts, plan, flags, result);
  add_data_parallelism(facts, flags, result);
  flags.add("parallelism.tensor_parallel_degree", facts.tensor);
  if (facts.tensor > 1 && !facts.sequence_parallel)
    flags.text += "  --parallelism.no-enable-sequence-parallel\n";
  flags.add("parallelism.context_parallel_degree", facts.context);
  flags.add("parallelism.expert_parallel_degree", facts.experts);
}

std::string_view mode_of(LayerRecompute recompute) {
  if (recompute == LayerRecompute::Whole) return "full";
  return recompute == LayerRecompute::Attention ? "selective" : "none";
}

void add_torchtitan_training(const PlanFacts& facts, const Plan& plan, TorchtitanFlags& flags) {
  // Without a pipeline torchtitan accumulates gradients over global / (local * replicas) steps.
  const int local = facts.pipeline > 1 ? plan.micro_batches * plan.micro_batch_size  //
                                       : plan.micro_batch_size;
  flags.add("training.local_batch_size", local);
  flags.add("training.global_batch_size", facts.global_batch);
  flags.add("training.seq_len", facts.model->sequence);
  // Which it has on, and refuses with either.
  if (facts.pipeline > 1 || facts.experts > 1) flags.text += "  --training.disable_cuda_graphs\n";
  if (plan.training.steps_given) flags.add("training.steps", plan.training.steps);
  if (plan.training.clip_grad_norm > 0)
    flags.add("training.max_norm", number_text(plan.training.clip_grad_norm));
  flags.add("training.mixed_precision_param",
            plan.model.bytes_per_element == 2 ? "bfloat16" : "float32");
}

void add_torchtitan_notes(const PlanFacts& facts, const TrainingSpec& training,
                          ExportedPlan& result) {
  result.notes.push_back(training.learning_rate_given
                             ? "no flag sets the learning rate: write " +
                                   number_text(training.learning_rate) +
                                   " into the configuration's optimizer, default_adamw(lr=...)"
                             : "the job gives no learning_rate: the configuration's own is taken");
  if (!training.steps_given) {
    result.notes.push_back(
        "the job does not say how long it trains: the configuration's training.steps is taken");
  }
  if (training.clip_grad_norm == 0) {
    result.notes.push_back(
        "torchtitan always clips gradients, at the configuration's training.max_norm, and the job "
        "does not");
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
  refuse_for_torchtitan(facts, plan, result);
  if (!result.refusals.empty()) return result;
  TorchtitanFlags flags;
  const bool known = add_model(*facts.model, flags, result);
  add_torchtitan_training(facts, plan, flags);
  add_parallelism(facts, plan, flags, result);
  // A sub-command, and so the last word.
  flags.text += "  activation_checkpoint:" + std::string(mode_of(*facts.recompute)) + "\n";
  add_torchtitan_notes(facts, plan.training, result);
  // torchtitan/distributed/parallel_dims.py: its mesh is pp, dp_replicate, dp_shard, cp, tp.
  note_rank_order(plan, "torchtitan", false,
                  "no flag changes that, so neighbours of the pipeline are further apart than "
                  "planned",
                  result);
  result.text = "# The command line of torchtitan 0.3 for " + std::to_string(facts.devices()) +
                " devices: source this file, then\n#   torchrun ... -m torchtitan.train " +
                (known ? "" : "--module ... --config ... ") + "\"${TITAN_ARGS[@]}\"\n";
  for (const std::string& note : result.notes) result.text += "# " + note + "\n";
  result.text += "TITAN_ARGS=(\n" + flags.text + ")\n";
  return result;
}

}  // namespace pipewright::planner
