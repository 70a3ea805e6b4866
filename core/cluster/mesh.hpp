// The devices of a plan as a grid with named dimensions, row major: {"pp": 4}
// or {"dp": 2, "pp": 4}.
#pragma once

#include <string>
#include <vector>

#include "core/base/json.hpp"

namespace pipewright {

struct Mesh {
  std::vector<int> shape;
  std::vector<std::string> dim_names;
  std::vector<int> devices;  // row major, as many as the product of shape

  /// Size of a dimension, 1 if the mesh does not have it.
  int size(std::string_view dim) const;
  static Mesh pipeline(int ranks);
  /// {"dp": replicas, "pp": ranks}, or {"pp": ranks} where there is one replica.
  static Mesh data_parallel(int replicas, int ranks);
  /// {"pp", "dp", "cp", "tp"}, of these "pp" and those larger than 1, on devices 0, 1, …: tensor
  /// parallel devices side by side, the ranks of a pipeline furthest apart.
  static Mesh grid(int pipeline, int data, int context, int tensor);
  /// The same with "dp" before "pp": the ranks of a pipeline nearer to each other, replicas
  /// furthest apart.
  static Mesh grid_of_replicas(int pipeline, int data, int context, int tensor);
  /// The same with "cp", too, before "pp": ranks along it lie as replicas do.
  static Mesh grid_of_parts(int pipeline, int data, int context, int tensor);
  /// Whether replicas are further apart than the ranks of a pipeline; false without either.
  bool has_pipeline_inside_data() const;
  /// Device of each pipeline rank, of the first replica where there are several.
  std::vector<int> devices_of_pipeline() const;
  /// Those of all replicas, one replica after the other: pipeline rank r of replica d is rank
  /// d * size("pp") + r of the run.
  std::vector<int> devices_of_replicas() const;
  /// The same where every place along "cp" counts as a replica, one after the other.
  std::vector<int> devices_of_parts() const;
  /// The same with the "tp" devices of each of these ranks side by side.
  std::vector<int> devices_that_divide_ranks() const;
};
Mesh read_mesh(const JsonCursor& value);
Json to_json(const Mesh& mesh);

}  // namespace pipewright
