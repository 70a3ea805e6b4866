#include "core/spmd/graph/graph_optimizer.hpp"

#include <algorithm>

#include "core/base/json_fields.hpp"
#include "core/spmd/graph/graph.hpp"
#include "core/spmd/local_part.hpp"

namespace pipewright::spmd {
namespace {

using Which = GraphOptimizer::Kind;

struct NamedKind {
  std::string_view name;
  Which kind;
  double learning_rate;
  std::vector<std::string_view> states;
};

const std::vector<NamedKind>& named_kinds() {
  static const std::vector<NamedKind> kinds = {
      {"sgd", Which::Sgd, 0.1, {}},
      {"momentum", Which::Momentum, 0.1, {"velocity"}},
      {"adamw", Which::AdamW, 0.001, {"mean", "square"}},
  };
  return kinds;
}

const NamedKind& row_of(Which kind) {
  return *std::ranges::find(named_kinds(), kind, &NamedKind::kind);
}

/// A number of the file that the kind uses.
void read_number(const JsonCursor& value, std::string_view key, double least, double most,
                 double& number) {
  if (const auto given = value.find(key)) number = given->number(least, most);
}

}  // namespace

const std::string& GraphOptimizer::dim() const {
  static const std::string kData = "dp";
  return sharding_dim ? *sharding_dim : kData;
}

GraphOptimizer optimizer_named(std::string_view name) {
  std::vector<std::string_view> names;
  for (const NamedKind& one : named_kinds()) {
    if (one.name == name) return {.kind = one.kind, .learning_rate = one.learning_rate};
    names.push_back(one.name);
  }
  throw InputError("unknown optimizer \"" + std::string(name) + "\"" + did_you_mean(name, names) +
                   "; choose sgd, momentum or adamw");
}

std::vector<std::string_view> states_of(Which kind) { return row_of(kind).states; }

GraphOptimizer read_optimizer(const JsonCursor& value) {
  const JsonCursor type = value.at("type");
  GraphOptimizer optimizer = parsed_at(type, [&] { return optimizer_named(type.string()); });
  std::vector<std::string_view> keys = {"type", "learning_rate", "sharding_stage", "sharding_dim"};
  if (optimizer.kind == Which::Momentum) keys.push_back("momentum");
  if (optimizer.kind == Which::AdamW) {
    keys.insert(keys.end(), {"beta1", "beta2", "epsilon", "weight_decay"});
  }
  value.only(keys);
  constexpr double kBelowOne = 1 - 1e-9, kMostRate = 1e9;
  read_number(value, "learning_rate", 0, kMostRate, optimizer.learning_rate);
  read_number(value, "momentum", 0, kBelowOne, optimizer.momentum);
  read_number(value, "beta1", 0, kBelowOne, optimizer.beta1);
  read_number(value, "beta2", 0, kBelowOne, optimizer.beta2);
  read_number(value, "epsilon", 1e-30, 1, optimizer.epsilon);
  read_number(value, "weight_decay", 0, kMostRate, optimizer.weight_decay);
  if (const auto stage = value.find("sharding_stage")) {
    optimizer.sharding_stage = read_count(*stage, 0, 3);
  }
  if (const auto dim = value.find("sharding_dim")) optimizer.sharding_dim = read_name(*dim);
  return optimizer;
}

Json to_json(const GraphOptimizer& optimizer) {
  Json fields = {{"type", row_of(optimizer.kind).name}, {"learning_rate", optimizer.learning_rate}};
  if (optimizer.kind == Which::Momentum) fields["momentum"] = optimizer.momentum;
  if (optimizer.kind == Which::AdamW) {
    fields.update({{"beta1", optimizer.beta1},
                   {"beta2", optimizer.beta2},
                   {"epsilon", optimizer.epsilon},
                   {"weight_decay", optimizer.weight_decay}});
  }
  if (optimizer.sharding_stage > 0) fields["sharding_stage"] = optimizer.sharding_stage;
  if (optimizer.sharding_dim) fields["sharding_dim"] = *optimizer.sharding_dim;
  return fields;
}

void require_sharding(const GraphOptimizer& optimizer, const std::vector<NamedMesh>& meshes) {
  if (optimizer.sharding_stage == 0) return;
  std::vector<std::string_view> names;
  for (const NamedMesh& one : meshes) {
    names.insert(names.end(), one.mesh.dim_names.begin(), one.mesh.dim_names.end());
  }
  if (std::ranges::count(names, optimizer.dim()) > 0) return;
  throw InputError("the optimizer's states are to be divided along \"" + optimizer.dim() +
                   "\", which is no dimension of a mesh" + did_you_mean(optimizer.dim(), names) +
                   "; name one in \"sharding_dim\"");
}

std::optional<Layout> sharded_layout(const Tensor& parameter, const ProcessMesh& mesh,
                                     const std::string& dim) {
  const auto found = std::ranges::find(mesh.dim_names, dim);
  if (found == mesh.dim_names.end()) return std::nullopt;
  const int at = static_cast<int>(found - mesh.dim_names.begin());
  for (const std::vector<int>& dims : parameter.layout.dims) {
    if (std::ranges::count(dims, at) > 0) return std::nullopt;
  }
  // The first process has the longest shard of every dimension.
  const auto largest = [&](const Layout& layout) {
    std::int64_t elements = 1;
    for (const std::int64_t size : local_part({parameter.shape, layout}, mesh, 0).shape) {
      elements *= size;
    }
    return elements;
  };
  std::optional<Layout> best;
  std::int64_t least = largest(parameter.layout);
  for (const bool is_whole : {true, false}) {
    for (std::size_t axis = 0; axis < parameter.shape.size(); ++axis) {
      if (parameter.layout.dims[axis].empty() != is_whole) continue;
      Layout layout = parameter.layout;
      layout.dims[axis].push_back(at);
      if (largest(layout) >= least) continue;
      least = largest(layout);
      best = std::move(layout);
    }
  }
  return best;
}

}  // namespace pipewright::spmd
