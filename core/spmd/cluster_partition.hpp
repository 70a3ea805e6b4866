// Ways to cut a cluster of equal machines into the stages of a pipeline, and to make a mesh of the
// devices of a stage: the few that PaddlePaddle's rule-based tuner tries.
#pragma once

#include <vector>

namespace pipewright::spmd {

/// Machines, and devices of each.
struct DeviceMesh {
  int machines = 1, devices = 1;

  bool operator==(const DeviceMesh&) const = default;
};

/// Each way is a list of stages. Stages are no more than machines of each of them: s stages of n /
/// s machines with s <= n / s, where n is a prime number s of n - 1 with one machine more for the
/// last stage; of two machines also one each. One machine is divided by its devices in the same
/// way. Throws InputError below 1.
std::vector<std::vector<DeviceMesh>> stage_cuts(const DeviceMesh& cluster);

/// Shapes of meshes of a stage's devices: in one row, and for each pair of factors of its machines
/// (of the devices, if it is one machine) one factor as rows.
std::vector<std::vector<int>> mesh_shapes(const DeviceMesh& stage);

}  // namespace pipewright::spmd
