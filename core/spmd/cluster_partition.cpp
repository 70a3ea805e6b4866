#include "core/spmd/cluster_partition.hpp"

#include "core/base/error.hpp"
#include "core/base/most_devices.hpp"

namespace pipewright::spmd {
namespace {

/// The factors of a number that are no more than what they are multiplied with, ascending.
std::vector<int> small_factors(int number) {
  std::vector<int> factors;
  for (int factor = 1; factor <= number / factor; ++factor) {
    if (number % factor == 0) factors.push_back(factor);
  }
  return factors;
}

void require_devices(const DeviceMesh& mesh) {
  if (mesh.machines < 1 || mesh.devices < 1 || mesh.machines > kMostDevices / mesh.devices) {
    throw InputError("expected 1 to " + std::to_string(kMostDevices) +
                     " devices on one machine or more");
  }
}

/// Numbers of stages that machines are cut into; `odd` is 1 where the last stage has one more.
std::vector<int> stage_counts(int machines, int& odd) {
  odd = 0;
  if (machines == 2) return {1, 2};
  std::vector<int> counts = small_factors(machines);
  if (counts.size() > 1) return counts;
  odd = 1;
  return machines == 3 ? std::vector<int>{1, 2} : small_factors(machines - 1);
}

}  // namespace

std::vector<std::vector<DeviceMesh>> stage_cuts(const DeviceMesh& cluster) {
  require_devices(cluster);
  std::vector<std::vector<DeviceMesh>> ways;
  if (cluster.machines == 1) {
    for (const int stages : small_factors(cluster.devices)) {
      ways.emplace_back(static_cast<std::size_t>(stages), DeviceMesh{1, cluster.devices / stages});
    }
    return ways;
  }
  int odd = 0;
  for (const int stages : stage_counts(cluster.machines, odd)) {
    ways.emplace_back(static_cast<std::size_t>(stages),
                      DeviceMesh{(cluster.machines - odd) / stages, cluster.devices});
    ways.back().back().machines += odd;
  }
  return ways;
}

std::vector<std::vector<int>> mesh_shapes(const DeviceMesh& stage) {
  require_devices(stage);
  const int all = stage.machines * stage.devices;
  const bool one_machine = stage.machines == 1;
  std::vector<std::vector<int>> shapes = {{all}};
  for (const int factor : small_factors(one_machine ? stage.devices : stage.machines)) {
    const int other = (one_machine ? stage.devices : stage.machines) / factor;
    if (factor > 1 && (one_machine || factor != other)) shapes.push_back({factor, all / factor});
    if (!one_machine) shapes.push_back({other, all / other});
  }
  return shapes;
}

}  // namespace pipewright::spmd
