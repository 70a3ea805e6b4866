// plan.json: everything that a run needs and everything that was predicted of
// it (docs/plan-format.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.hpp"
#include "core/cluster/cluster.hpp"
#include "core/cluster/mesh.hpp"
#include "core/costs/action_times.hpp"
#include "core/costs/costs.hpp"
#include "core/model/architecture.hpp"
#include "core/model/model.hpp"
#include "core/model/recompute.hpp"
#include "core/model/tensor_split.hpp"
#include "core/order/comm_policy.hpp"
#include "core/order/order.hpp"

namespace pipewright {

struct StagePlan {
  int first_layer = 0, end_layer = 0;  // half open
  RankId rank;
};

/// Generator and its parameters; the order too where it was edited or read from
/// a file.
struct SchedulePlan {
  std::string name;  // registry name, or "custom" (then `order` is set)
  int chunks = 1;    // vpp
  std::map<std::string, std::string> parameters;
  std::optional<Order> order;
};

struct TrainingSpec {
  std::string optimizer = "adamw";  // or "sgd"
  double learning_rate = 1e-3;
  int steps = 20;
  std::uint64_t seed = 1;
  std::string data;  // a file of bytes, or of inputs (".npy"); empty: the caller gives it
  std::string labels, targets;  // beside inputs: ".npy" files, at most one of the two
  RecomputeSpec recompute;
  double clip_grad_norm = 0;  // 0: gradients are not clipped
  /// Whether the document gives it; else the value is an assumption of ours, which a run takes and
  /// an export leaves out.
  bool learning_rate_given = false, steps_given = false, clip_grad_norm_given = false;
};

struct Prediction {
  Nanoseconds step;
  double bubble_ratio = 0;
  std::vector<int> peak_activations;
  std::vector<Bytes> peak_bytes;
};

struct TunerRecord {
  std::uint64_t seed = 0;
  int evaluated = 0;
  std::map<std::string, int> pruned;  // by reason
  std::vector<std::string> reasons;   // why this plan, in sentences
  Nanoseconds baseline_step;          // the best configuration of schedule "naive"; 0:
                                      // not compared
};

/// Whether a kind of device runs a plan.
struct Executable {
  enum class Answer : std::uint8_t {
    Yes,
    IfThere,  // where the machine has what `why` names, which is looked for when the run begins
    No,       // `why` names what is missing
  };
  Answer answer = Answer::Yes;
  std::string why;
  bool operator==(const Executable&) const = default;
};
/// As plan.json has it: "yes", "needs ...", or what is missing. Every text is one of these.
std::string to_text(const Executable& executable);
Executable executable_of_text(std::string_view text);

struct Plan {
  Model model;
  std::optional<Architecture> architecture;  // what `model` was made of, where it was given so
  Cluster cluster;
  Mesh mesh;
  int micro_batches = 1, micro_batch_size = 1;  // of one replica
  std::vector<StagePlan> stages;
  SchedulePlan schedule;  // of one replica
  CommPolicy policy;
  int sharding_stage = 0;          // of ZeRO, 0 to 3; each replica updates its part from 1 on
  int sharding_degree = 0;         // replicas that divide one another's state; 0: all
  int unshard_lookahead = 0;       // stages whose weights are gathered before their turn (ZeRO 3)
  int expert_parallel = 1;         // ranks that divide the experts
  int expert_tensor_parallel = 0;  // ranks that divide each expert; 0: as along tp
  bool sequence_parallel = false;  // tensor parallel ranks divide norms and dropouts too
  bool ring = false;               // keys and values go round the ranks along cp
  /// Of the actions of stages, by kind; empty: nothing is said of what ranks tell one another
  /// inside a stage.
  std::vector<ActionParts> parts;
  /// Of a plan with parts: replicas are ranks of the Program, and so is every place along "cp",
  /// whose exchanges are in the costs of F and I. Else one stands for all of them, and what they
  /// exchange is in the costs of its updates.
  bool replicas_are_ranks = false;
  CostTable costs;  // routes between all_ranks()
  Prediction predicted;
  std::map<std::string, Executable> executable;  // by device kind
  TrainingSpec training;
  TunerRecord tuner;

  // A rank is the "tp" times "cp" devices that compute together, or, where replicas are ranks, the
  // "tp" ones.
  int ranks() const { return mesh.size("pp"); }     // of the pipeline, of one replica
  int replicas() const { return mesh.size("dp"); }  // of the whole pipeline: data parallel
  int expert_tensor() const {                       // ranks that divide each expert
    return expert_tensor_parallel > 0 ? expert_tensor_parallel : mesh.size("tp");
  }
  /// Replicas that divide one another's state; 1: none do.
  int shards() const {
    if (sharding_stage == 0) return 1;
    return sharding_degree > 0 ? sharding_degree : replicas();
  }
  Sharding sharding() const {
    return {sharding_stage, sharding_stage > 0 ? replicas() / shards() : 1, unshard_lookahead};
  }
  // Of the Program, where each place along "cp" may count as a replica: pipeline rank r of replica
  // d is rank d * ranks() + r, and its micro-batches are those from d * micro_batches on.
  int program_replicas() const {
    if (replicas_are_ranks) return replicas() * mesh.size("cp");
    return parts.empty() ? replicas() : 1;
  }
  int all_ranks() const { return program_replicas() * ranks(); }
  int all_micro_batches() const { return program_replicas() * micro_batches; }
  ReplicaShape shape() const { return {program_replicas(), ranks(), micro_batches}; }
  /// The devices that divide the layers of a stage, along each axis. Of experts that cannot be
  /// dealt out as the plan says (fold_fault()) as if it did not say so.
  StageDivision division() const;
};

/// Of the devices for which a rank stands in a plan with parts (core/plan/rank_axes.hpp).
std::vector<MeshAxis> axes_of(const Plan& plan);

Plan read_plan(const JsonCursor& document);
Json to_json(const Plan& plan);
Plan load_plan(const std::string& path);
void save_plan(const Plan& plan, const std::string& path);

}  // namespace pipewright
