#include "planner/tensor_placement/mesh_prices.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/program/program.hpp"
#include "core/spmd/reshard_steps.hpp"
#include "planner/estimate/coefficients.hpp"

namespace pipewright::planner::tensor_placement {
namespace {

bool has_known_rates(const std::string& model) {
  const auto names = device_rate_names();
  return std::any_of(names.begin(), names.end(),
                     [&](std::string_view name) { return model.find(name) != std::string::npos; });
}

ActionKind action_of(spmd::ReshardStep::Kind kind) {
  using Kind = spmd::ReshardStep::Kind;
  switch (kind) {
    case Kind::AllGather:
      return ActionKind::AllGather;
    case Kind::AllReduce:
      return ActionKind::AllReduce;
    case Kind::ReduceScatter:
      return ActionKind::ReduceScatter;
    case Kind::AllToAll:
      return ActionKind::AllToAll;
    default:
      throw_bug(__FILE__, __LINE__, "a step that is no collective has no price");
  }
}

}  // namespace

DeviceSpeed device_speed(const Cluster& cluster) {
  if (!has_known_rates(cluster.device.model)) {
    return {cluster.device.flops, cluster.inside.bytes_per_second};
  }
  const DeviceRates rates = device_rates(cluster.device.model);
  const double peak = cluster.device.flops > 0 ? cluster.device.flops : rates.peak_flops;
  return {peak * rates.matmul_efficiency, rates.memory_bytes_per_second * rates.memory_efficiency};
}

MeshPrices::MeshPrices(const Cluster& cluster, const spmd::ProcessMesh& mesh)
    : mesh_(mesh), speed_(device_speed(cluster)) {
  for (const int rank : mesh.ranks) {
    if (rank < cluster.devices()) continue;
    throw InputError("the mesh has rank " + std::to_string(rank) + ", and cluster \"" +
                     cluster.name + "\" " + std::to_string(cluster.devices()) +
                     " devices; name a larger cluster");
  }
  set_routes(costs_, cluster, mesh.ranks);
  for (std::size_t place = 0; place < mesh.ranks.size(); ++place) {
    place_of_rank_[mesh.ranks[place]] = static_cast<int>(place);
  }
}

double MeshPrices::of(const spmd::ReshardStep& step, const spmd::Shape& shape,
                      const spmd::Layout& from, std::int64_t element_bytes) const {
  using Kind = spmd::ReshardStep::Kind;
  if (step.kind == Kind::Slice || step.kind == Kind::MakePartial) return 0;
  std::vector<int> dims = {step.mesh_dim};
  dims.insert(dims.end(), step.more_dims.begin(), step.more_dims.end());
  // The first process of a mesh has the largest part.
  const spmd::Layout& larger = step.kind == Kind::AllGather ? step.after.layout : from;
  const auto part = spmd::local_part({shape, larger}, mesh_, 0);
  return collective(action_of(step.kind), dims, element_bytes * spmd::elements_of(part));
}

double MeshPrices::all_reduce(const std::vector<int>& dims, std::int64_t bytes) const {
  return collective(ActionKind::AllReduce, dims, bytes);
}

double MeshPrices::compute(double operations, double bytes) const {
  return 1e9 * std::max(operations / speed_.operations_per_second, bytes / speed_.bytes_per_second);
}

double MeshPrices::collective(ActionKind kind, const std::vector<int>& dims,
                              std::int64_t bytes) const {
  const auto [known, fresh] = known_.try_emplace({kind, dims, bytes}, 0);
  if (!fresh) return known->second;
  for (const std::vector<int>& group : spmd::groups_along(mesh_, dims)) {
    if (group.size() < 2) continue;
    Collective collective;
    collective.kind = kind;
    collective.call_bytes = bytes;
    std::vector<int> places;
    for (const int rank : group) places.push_back(place_of_rank_.at(rank));
    std::sort(places.begin(), places.end());
    for (const int place : places) collective.members.push_back({RankId(place)});
    const auto ns = costs_.collective_time(collective, static_cast<int>(mesh_.ranks.size()));
    known->second = std::max(known->second, static_cast<double>(ns.value));
  }
  return known->second;
}

}  // namespace pipewright::planner::tensor_placement
