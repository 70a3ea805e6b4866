// What every export reads off a plan: degrees, the model as its authors write it, and which blocks
// a stage has. Plain data, pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/model/architecture.hpp"
#include "core/plan/plan.hpp"
#include "planner/export/export.hpp"

namespace pipewright::planner {

/// A stage of a decoder: blocks [first_block, first_block + blocks), and what stands at the ends.
struct StageBlocks {
  bool embedding = false, head = false;
  int first_block = 0, blocks = 0;
};

struct PlanFacts {
  std::optional<Architecture> model;  // nullopt: not a decoder-only transformer
  std::string foreign_layer;          // in words, where it is not: the first one that no GPT has
  int tensor = 1, context = 1, data = 1, pipeline = 1, experts = 1;
  int expert_tensor = 1;  // ranks that divide each expert
  bool sequence_parallel = false;
  /// What ranks along cp exchange, by Megatron's name; "": as the framework does.
  std::string cp_comm_type;
  int zero = 0;    // ZeRO stage, 0 where there is one replica
  int shards = 1;  // replicas that divide their state; fewer than `data`: hybrid sharding
  int chunks = 1;  // stages a rank
  std::string schedule;
  int global_batch = 1;             // samples of a step, of all replicas
  std::vector<StageBlocks> stages;  // empty where `model` is
  /// What all blocks do; nullopt: they differ.
  std::optional<LayerRecompute> recompute;

  int devices() const { return tensor * context * data * pipeline; }
};

PlanFacts facts_of(const Plan& plan);

/// A number of a training as other tools read it: "0.003", "1e-05".
std::string number_text(double value);
/// Whether the job clips gradients, or says that it does not.
bool clips_or_says_no(const TrainingSpec& training);

/// "0: embedding and 3 blocks, 1: 4 blocks, …".
std::string describe(const std::vector<StageBlocks>& stages);

/// Whether all stages have the same number of blocks.
bool evenly_cut(const PlanFacts& facts);

/// Adds a refusal where replicas divide their state in groups.
void require_all_sharded(const PlanFacts& facts, const std::string& tool, ExportedPlan& result);
/// Adds a refusal where the model is no transformer, and where blocks differ in what they compute
/// again; `tool` begins the sentence.
void require_transformer(const PlanFacts& facts, const std::string& tool, ExportedPlan& result);
/// For tools whose file says nothing of the model: with LoRA, what its code has to do.
void note_lora(const PlanFacts& facts, ExportedPlan& result);
void require_one_recompute(const PlanFacts& facts, const std::string& tool, ExportedPlan& result);

}  // namespace pipewright::planner
