#include "core/spmd/layer_meshes.hpp"

#include <algorithm>
#include <cctype>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"

namespace pipewright::spmd {
namespace {

std::string in_capitals(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  return text;
}

int chunks_of(const LayerPlacement& placement, int stages) {
  const std::string schedule = in_capitals(placement.schedule);
  if (schedule == "1F1B" || schedule == "GPIPE") return stages;
  if (schedule != "VPP") {
    throw InputError("schedule: expected 1F1B, GPIPE or VPP, found \"" + placement.schedule + "\"" +
                     did_you_mean(placement.schedule, {"1F1B", "GPIPE", "VPP"}));
  }
  if (!placement.vpp_degree) throw InputError("vpp_degree: VPP needs the chunks of each stage");
  const int chunks = *placement.vpp_degree * stages;
  if (placement.layers < chunks) {
    throw InputError("layers: " + std::to_string(chunks) + " chunks have " +
                     std::to_string(placement.layers) + " layers; each needs one");
  }
  return chunks;
}

}  // namespace

std::vector<std::vector<int>> slices_along(const ProcessMesh& mesh, const std::string& dim_name) {
  const auto found = std::find(mesh.dim_names.begin(), mesh.dim_names.end(), dim_name);
  if (found == mesh.dim_names.end()) {
    throw InputError("mesh: has no dimension \"" + dim_name + "\"");
  }
  const auto dim = static_cast<std::size_t>(found - mesh.dim_names.begin());
  std::vector<std::vector<int>> slices(static_cast<std::size_t>(mesh.shape[dim]));
  for (std::size_t place = 0; place < mesh.ranks.size(); ++place) {
    slices[static_cast<std::size_t>(mesh.coordinates(place)[dim])].push_back(mesh.ranks[place]);
  }
  return slices;
}

std::vector<std::vector<int>> meshes_of_layers(const ProcessMesh& mesh,
                                               const LayerPlacement& placement) {
  const std::vector<std::vector<int>> stages = slices_along(mesh, "pp");
  const int chunks = chunks_of(placement, static_cast<int>(stages.size()));
  const int each = placement.layers / chunks, longer = placement.layers % chunks;
  std::vector<std::vector<int>> layers;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const std::size_t count = static_cast<std::size_t>(each + (chunk < longer ? 1 : 0));
    layers.insert(layers.end(), count, stages[static_cast<std::size_t>(chunk) % stages.size()]);
  }
  return layers;
}

}  // namespace pipewright::spmd
