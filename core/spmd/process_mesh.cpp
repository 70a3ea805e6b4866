#include "core/spmd/process_mesh.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>

#include "core/base/error.hpp"

namespace pipewright::spmd {

std::vector<std::string> names_of_dims(int dims) {
  std::vector<std::string> names;
  for (int dim = 0; dim < dims; ++dim) names.push_back("d" + std::to_string(dim));
  return names;
}

ProcessMesh ProcessMesh::of_shape(std::vector<int> shape) {
  ProcessMesh mesh;
  mesh.shape = std::move(shape);
  mesh.dim_names = names_of_dims(mesh.dims());
  int processes = 1;
  for (const int size : mesh.shape) processes *= size;
  mesh.ranks.resize(static_cast<std::size_t>(processes));
  std::iota(mesh.ranks.begin(), mesh.ranks.end(), 0);
  return mesh;
}

std::vector<int> ProcessMesh::coordinates(std::size_t place) const {
  std::vector<int> at(shape.size());
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    const auto size = static_cast<std::size_t>(shape[dim]);
    at[dim] = static_cast<int>(place % size);
    place /= size;
  }
  return at;
}

std::vector<std::size_t> ProcessMesh::line(std::size_t place, int dim) const {
  std::size_t stride = 1;
  for (int inner = dim + 1; inner < dims(); ++inner)
    stride *= static_cast<std::size_t>(size(inner));
  const auto own = static_cast<std::size_t>(coordinates(place)[static_cast<std::size_t>(dim)]);
  std::vector<std::size_t> places(static_cast<std::size_t>(size(dim)));
  for (std::size_t at = 0; at < places.size(); ++at)
    places[at] = place - own * stride + at * stride;
  return places;
}

void require_mesh(const ProcessMesh& mesh) {
  if (mesh.shape.empty() || mesh.shape.size() > kMostMeshDims) {
    throw InputError("a mesh has 1 to " + std::to_string(kMostMeshDims) + " dimensions, not " +
                     std::to_string(mesh.shape.size()));
  }
  std::int64_t processes = 1;
  for (const int size : mesh.shape) {
    if (size < 1) throw InputError("a dimension of a mesh has size 1 or more");
    processes *= size;
    if (processes > kMostMeshProcesses) {
      throw InputError("a mesh has at most " + std::to_string(kMostMeshProcesses) + " processes");
    }
  }
  if (static_cast<std::int64_t>(mesh.ranks.size()) != processes) {
    throw InputError("a mesh of shape " + text_of(mesh) + " has " + std::to_string(processes) +
                     " processes, not " + std::to_string(mesh.ranks.size()));
  }
  if (std::set<int>(mesh.ranks.begin(), mesh.ranks.end()).size() != mesh.ranks.size()) {
    throw InputError("a process stands in a mesh once");
  }
  if (mesh.dim_names.size() != mesh.shape.size()) {
    throw InputError("a mesh has a name for each of its dimensions");
  }
}

std::string text_of(const ProcessMesh& mesh) {
  std::string text;
  for (const int size : mesh.shape) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

}  // namespace pipewright::spmd
