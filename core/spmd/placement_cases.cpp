#include "core/spmd/placement_cases.hpp"

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"

namespace pipewright::spmd {
namespace {

/// Takes the ranks below `value`; `depth` counts its lists.
void read_ranks(const JsonCursor& value, std::size_t depth, ProcessMesh& mesh) {
  if (!value.value().is_array()) {
    if (depth != mesh.shape.size()) value.fail("lists of equal depth");
    mesh.ranks.push_back(static_cast<int>(value.integer(0, 1 << 30)));
    return;
  }
  const std::vector<JsonCursor> elements = value.elements();
  if (depth == mesh.shape.size()) {
    if (!mesh.ranks.empty()) value.fail("lists of equal depth");
    mesh.shape.push_back(static_cast<int>(elements.size()));
  }
  if (static_cast<int>(elements.size()) != mesh.shape[depth]) value.fail("lists of equal length");
  for (const JsonCursor& element : elements) read_ranks(element, depth + 1, mesh);
}

LayerCase read_layer_case(const JsonCursor& value) {
  value.only({"layers", "mesh", "dims", "schedule", "vpp_degree", "expect", "source"});
  LayerCase one;
  std::vector<std::string> names;
  for (const JsonCursor& name : value.at("dims").elements()) names.push_back(read_name(name));
  one.mesh = read_nested_mesh(value.at("mesh"), std::move(names));
  one.placement.layers = read_count(value.at("layers"), 1, 10'000);
  one.placement.schedule = read_name(value.at("schedule"));
  if (const auto degree = value.find("vpp_degree")) {
    one.placement.vpp_degree = read_count(*degree, 1, 1 << 10);
  }
  return one;
}

/// The two numbers of "2x8" or "(2, 8)".
DeviceMesh read_device_mesh(const std::string& text, const JsonCursor& value) {
  std::vector<std::int64_t> numbers = {0};
  bool inside = false;
  for (const char letter : text) {
    if (letter >= '0' && letter <= '9') {
      if (!inside && numbers.back() != 0) numbers.push_back(0);
      numbers.back() = std::min<std::int64_t>(10 * numbers.back() + (letter - '0'), 1 << 20);
    }
    inside = letter >= '0' && letter <= '9';
  }
  if (numbers.size() != 2) value.fail("a key such as \"2x8\": machines, and devices of each");
  return {static_cast<int>(numbers[0]), static_cast<int>(numbers[1])};
}

/// For each member of `value`, what `answer` says of the machines in its key.
template <class Answer>
Json by_device_mesh(const std::optional<JsonCursor>& value, Answer answer) {
  Json answers = Json::object();
  if (!value) return answers;
  for (const auto& [key, member] : value->members()) {
    const DeviceMesh mesh = read_device_mesh(key, member);
    answers[key] = parsed_at(member, [&] { return answer(mesh); });
  }
  return answers;
}

Json cuts_as_json(const DeviceMesh& cluster) {
  Json ways = Json::array();
  for (const std::vector<DeviceMesh>& way : stage_cuts(cluster)) {
    ways.push_back(Json::array());
    for (const DeviceMesh& stage : way) ways.back().push_back({stage.machines, stage.devices});
  }
  return ways;
}

}  // namespace

ProcessMesh read_nested_mesh(const JsonCursor& value, std::vector<std::string> dim_names) {
  ProcessMesh mesh;
  if (!value.value().is_array()) value.fail("lists of ranks");
  read_ranks(value, 0, mesh);
  mesh.dim_names = std::move(dim_names);
  if (mesh.dim_names.empty()) mesh.dim_names = names_of_dims(mesh.dims());
  parsed_at(value, [&] { return require_mesh(mesh), 0; });
  return mesh;
}

std::vector<LayerCase> read_layer_cases(const JsonCursor& document) {
  std::vector<LayerCase> cases;
  for (const JsonCursor& element : document.at("layer_to_mesh_cases").elements()) {
    cases.push_back(read_layer_case(element));
  }
  return cases;
}

Json answer_to(const LayerCase& layer_case) {
  try {
    Json answer = Json::object();
    const auto layers = meshes_of_layers(layer_case.mesh, layer_case.placement);
    for (std::size_t at = 0; at < layers.size(); ++at) answer[std::to_string(at)] = layers[at];
    return answer;
  } catch (const InputError& error) {
    return {{"raises", error.message()}};
  }
}

Json cluster_answers(const JsonCursor& document) {
  const JsonCursor value = document.at("cluster_partition");
  value.only({"device_meshes", "process_meshes"});
  return {
      {"device_meshes", by_device_mesh(value.find("device_meshes"), cuts_as_json)},
      {"process_meshes", by_device_mesh(value.find("process_meshes"), [](const DeviceMesh& mesh) {
         return Json(mesh_shapes(mesh));
       })}};
}

}  // namespace pipewright::spmd
