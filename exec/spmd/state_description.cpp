#include "exec/spmd/state_description.hpp"

#include <algorithm>
#include <map>

#include "core/base/json_fields.hpp"
#include "core/spmd/graph/graph_json.hpp"
#include "core/spmd/inference_cases.hpp"
#include "core/spmd/reshard_steps.hpp"
#include "exec/spmd/graph_training.hpp"

namespace pipewright::exec::graphs {
namespace {

constexpr int kMostSavedSteps = 1'000'000'000;
constexpr std::size_t kMostSavedArrays = 4 * spmd::kMostTensors;

using Meshes = std::map<std::string, spmd::ProcessMesh>;

Meshes read_meshes(const JsonCursor& value) {
  Meshes meshes;
  for (const auto& [name, mesh] : value.members()) {
    mesh.only({"shape", "dim_names", "ranks"});
    meshes[name] = spmd::read_process_mesh(mesh, "ranks");
    if (meshes[name].ranks.size() > spmd::kMostMeshRanks) {
      mesh.at("ranks").fail("at most 64 processes");
    }
  }
  return meshes;
}

void require_size(const JsonCursor& value, const spmd::Shape& shape) {
  if (shape.size() > spmd::kMostGraphDims) value.fail("at most 8 dimensions");
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) {
    if (size < 1 || size > kMostGraphElements / elements) {
      value.fail("1 to " + std::to_string(kMostGraphElements) + " elements");
    }
    elements *= size;
  }
}

SavedArray read_array(const std::string& name, const JsonCursor& value, const Meshes& meshes) {
  value.only({"shape", "mesh", "dims_mapping"});
  SavedArray array{.name = name, .shape = spmd::read_shape(value.at("shape")), .lies = {}};
  require_size(value.at("shape"), array.shape);
  const JsonCursor mesh = value.at("mesh");
  const auto found = meshes.find(mesh.string());
  if (found == meshes.end()) mesh.fail("the name of one of the meshes");
  const JsonCursor mapping = value.at("dims_mapping");
  array.lies = {found->second, {.dims = spmd::read_dims_mapping(mapping), .partial = {}}};
  parsed_at(mapping, [&] {
    return require_layout({array.shape, array.lies.layout}, array.lies.mesh, "\"" + name + "\""), 0;
  });
  return array;
}

}  // namespace

const SavedArray* StateDescription::find(const std::string& name) const {
  const auto found = std::ranges::find(arrays, name, &SavedArray::name);
  return found == arrays.end() ? nullptr : &*found;
}

std::string saved_name(std::string_view kind, const std::string& parameter) {
  return std::string(kind) + "/" + parameter;
}

std::vector<WrittenPart> written_parts(const SavedArray& array) {
  std::vector<WrittenPart> written;
  const spmd::ProcessMesh& mesh = array.lies.mesh;
  for (std::size_t place = 0; place < mesh.ranks.size(); ++place) {
    spmd::LocalPart part = local_part({array.shape, array.lies.layout}, mesh, place);
    const bool is_there = std::ranges::any_of(written, [&](const WrittenPart& other) {
      return other.part.offset == part.offset && other.part.shape == part.shape;
    });
    if (spmd::elements_of(part) > 0 && !is_there) {
      written.push_back({mesh.ranks[place], std::move(part)});
    }
  }
  return written;
}

StateDescription read_state_description(const JsonCursor& document) {
  require_schema(document, "graph_state");
  document.only({"schema", "step", "save", "meshes", "arrays"});
  StateDescription description{.step = read_count(document.at("step"), 0, kMostSavedSteps),
                               .arrays = {}};
  if (const auto save = document.find("save")) description.save = read_count(*save, 1, kMostSaves);
  const Meshes meshes = read_meshes(document.at("meshes"));
  const auto members = document.at("arrays").members();
  if (members.size() > kMostSavedArrays) document.at("arrays").fail("at most 40000 arrays");
  for (const auto& [name, value] : members) {
    description.arrays.push_back(read_array(name, value, meshes));
  }
  return description;
}

Json to_json(const StateDescription& description) {
  Json document = {{"schema", "pipewright.graph_state/1"},
                   {"step", description.step},
                   {"meshes", Json::object()},
                   {"arrays", Json::object()}};
  if (description.save > 0) document["save"] = description.save;
  std::vector<spmd::ProcessMesh> meshes;
  for (const SavedArray& array : description.arrays) {
    auto found = std::ranges::find(meshes, array.lies.mesh);
    if (found == meshes.end()) found = meshes.insert(found, array.lies.mesh);
    const std::string name = "mesh" + std::to_string(found - meshes.begin());
    document["meshes"][name] = {
        {"shape", found->shape}, {"dim_names", found->dim_names}, {"ranks", found->ranks}};
    Json& fields = document["arrays"][array.name];
    fields = {{"shape", array.shape}, {"mesh", name}};
    fields.update(spmd::layout_to_json(array.lies.layout));
  }
  return document;
}

}  // namespace pipewright::exec::graphs
