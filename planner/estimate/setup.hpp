// What a training run does in parallel, as far as its time and memory depend on it. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster/node_order.hpp"
#include "core/model/architecture.hpp"
#include "core/model/expert_fold.hpp"
#include "core/model/recompute.hpp"
#include "core/model/tensor_split.hpp"
#include "planner/base/left_out.hpp"
#include "planner/estimate/coefficients.hpp"

namespace pipewright::planner {

/// The order of data and pipeline parallel ranks outside tensor and context parallel ones
/// (planner/estimate/rank_places.hpp).
enum class RankOrder : std::uint8_t { PipelineOutermost, DataOutermost };
/// "tp-cp-dp-pp", "tp-cp-pp-dp": what varies fastest first, as Megatron-LM writes it.
std::string_view name_of(RankOrder order);

/// What stages compute again: all the same, or each its own. As it is compared, rows of equal times
/// are ordered (better() in planner/branches/evaluation.hpp); the same of DeviceOrder.
struct SetupRecompute {
  LayerRecompute of_all = LayerRecompute::None;
  bool by_stage = false;
  /// With by_stage, empty until they are chosen (planner/branches/recompute_by_stage.hpp).
  std::vector<LayerRecompute> of_stage = {};

  LayerRecompute at(std::size_t stage) const { return of_stage.empty() ? of_all : of_stage[stage]; }
  bool is_to_choose() const { return by_stage && of_stage.empty(); }
  auto operator<=>(const SetupRecompute&) const = default;
};

/// The order in which a pipeline goes through the machine's nodes, and ranks through devices.
struct DeviceOrder {
  NodeOrder of_nodes = {};  // of the machine; empty: as they are
  RankOrder of_ranks = RankOrder::PipelineOutermost;

  auto operator<=>(const DeviceOrder&) const = default;
};

struct ParallelSetup {
  int tensor = 1, data = 1, pipeline = 1;
  int chunks = 1;   // stages a pipeline rank holds (interleaving)
  int holders = 1;  // ranks of a pipeline that hold each stage (holders_in())
  /// Expert parallel ranks; with the ranks that divide each expert they divide tensor * data *
  /// context.
  int experts = 1;
  int expert_tensor_degree = 0;  // ranks that divide each expert; 0: tensor
  int context = 1;    // a sequence cut among ranks, heads exchanged for it around attention
  bool ring = false;  // planned layer by layer: keys and values go round these ranks
  int micro_batch_size = 1;
  int micro_batches = 1;  // of one replica
  SetupRecompute recompute;
  bool sequence_parallel = false;  // norms and dropouts divided among the tensor parallel ranks
  int zero = 0;                    // 1: optimizer state, 2: gradients too, 3: weights too
  int shards = 0;  // replicas that divide one another's state (hybrid sharding); 0: all of them
  bool overlap_gradients = false;  // reduced during the last micro-batch, gathered during the first
  bool tied_head_reduced = true;   // first and last stage add up a shared embedding's gradients
  std::vector<int> blocks_of_rank;  // empty: equal
  /// Ranks of each stage where micro-batches take turns on them
  /// (planner/configurations/stage_replicas.hpp), together all of `pipeline`; empty: the schedule
  /// has no such stages.
  std::vector<int> stage_replicas = {};
  DeviceOrder order;

  /// Ranks that divide each expert (Megatron core's expert_tensor_parallel_size; its default is
  /// tp).
  int expert_tensor() const { return expert_tensor_degree > 0 ? expert_tensor_degree : tensor; }
  /// Groups of replicas that each hold all of what ZeRO divides.
  int shard_groups() const { return zero > 0 && shards > 0 ? data / shards : 1; }
  /// Ranks that hold the same part of the same experts.
  int expert_replicas() const { return tensor * data * context / (experts * expert_tensor()); }
  int devices() const { return tensor * data * pipeline * context; }
  /// Planned layer by layer, ranks along cp are replicas in the plan's Program, whose gradients are
  /// summed with the others' (Plan::program_replicas()).
  int program_replicas() const { return data * context; }
  /// The ranks that divide the layers of a stage.
  StageDivision division() const {
    return division_with_experts(
        {.tensor = tensor, .rows = sequence_parallel, .context = context, .ring = ring}, experts,
        expert_tensor());
  }
  /// Why whole experts cannot be dealt out beside tp; "" if they can, or are not.
  std::string expert_tensor_fault() const;
};

/// Why the model cannot be trained with this setup, and what would do; nullopt: it can.
std::optional<Refusal> refusal(const Architecture& model, const Machine& machine,
                               const ParallelSetup& setup);

/// What a pipeline divides: the blocks, the embedding and the head.
int layers_of(const Architecture& model);

/// The number of blocks of a pipeline rank; none where it has the embedding or the head alone.
int blocks_of(const Architecture& model, const ParallelSetup& setup, int rank);

}  // namespace pipewright::planner
