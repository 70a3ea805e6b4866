// What updates the parameters of a graph, and how its states are divided: what PaddlePaddle's
// shard_optimizer says with ShardingStage1, 2 and 3.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.hpp"
#include "core/spmd/layout.hpp"

namespace pipewright::spmd {

struct NamedMesh;

struct GraphOptimizer {
  enum class Kind { Sgd, Momentum, AdamW };
  Kind kind = Kind::Sgd;
  double learning_rate = 0.1;
  double momentum = 0.9;  // Momentum alone; the rest AdamW alone, as in PaddlePaddle and PyTorch
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
  /// Along a dimension of the mesh on which parameters are whole, processes divide states (1),
  /// gradients too (2), parameters too, which are gathered before use (3).
  int sharding_stage = 0;
  std::optional<std::string> sharding_dim = {};  // nullopt: "dp"

  const std::string& dim() const;
  bool operator==(const GraphOptimizer&) const = default;
};

/// "sgd", "momentum" or "adamw", with the learning rate that it has by default. Throws InputError
/// with a suggestion.
GraphOptimizer optimizer_named(std::string_view name);
/// What is kept of each element of a parameter, by name.
std::vector<std::string_view> states_of(GraphOptimizer::Kind kind);

GraphOptimizer read_optimizer(const JsonCursor& value);
/// What the kind uses.
Json to_json(const GraphOptimizer& optimizer);

/// Throws InputError where states are divided along a dimension that no mesh has.
void require_sharding(const GraphOptimizer& optimizer, const std::vector<NamedMesh>& meshes);

/// How the states of a parameter that lies like this are divided along a dimension of the mesh,
/// too: the dimension of the tensor that leaves the fewest elements to the busiest process, of
/// equals a whole one and the first. nullopt: it is divided there already, or the mesh has no such
/// dimension, or nothing is left to be divided.
std::optional<Layout> sharded_layout(const Tensor& parameter, const ProcessMesh& mesh,
                                     const std::string& dim);

}  // namespace pipewright::spmd
