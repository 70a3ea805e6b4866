// What computing and communicating take on a mesh whose ranks are devices of a cluster.
#pragma once

#include <map>
#include <tuple>

#include "core/cluster/cluster.hpp"
#include "core/spmd/reshard.hpp"

namespace pipewright::planner::tensor_placement {

/// Of one device, as far as kernels reach it.
struct DeviceSpeed {
  double operations_per_second = 0;  // in large matrix products
  double bytes_per_second = 0;       // of its memory
};

/// Known devices as the analytical estimate has them (docs/cost-model.md); of others the cluster's
/// peak, and its memory as fast as its port inside the node.
DeviceSpeed device_speed(const Cluster& cluster);

/// Prices of collectives, as `simulate` has them for the cluster; all in nanoseconds.
class MeshPrices {
 public:
  /// Rank r of the mesh is device r. Throws InputError for a rank that has none.
  MeshPrices(const Cluster& cluster, const spmd::ProcessMesh& mesh);

  /// Of a step that is no exchange, from `from` on; 0 where nothing is sent.
  double of(const spmd::ReshardStep& step, const spmd::Shape& shape, const spmd::Layout& from,
            std::int64_t element_bytes) const;
  /// Of an all-reduce of so many bytes along these mesh dimensions.
  double all_reduce(const std::vector<int>& dims, std::int64_t bytes) const;
  /// What a process computes: the longer of its operations and of its memory's traffic.
  double compute(double operations, double bytes) const;

  const spmd::ProcessMesh& mesh() const { return mesh_; }

 private:
  double collective(ActionKind kind, const std::vector<int>& dims, std::int64_t bytes) const;

  spmd::ProcessMesh mesh_;
  DeviceSpeed speed_;
  CostTable costs_;
  std::map<int, int> place_of_rank_;
  mutable std::map<std::tuple<ActionKind, std::vector<int>, std::int64_t>, double> known_;
};

}  // namespace pipewright::planner::tensor_placement
