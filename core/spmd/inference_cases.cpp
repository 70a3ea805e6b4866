#include "core/spmd/inference_cases.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"

namespace pipewright::spmd {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 40;
constexpr std::size_t kMostTensorDims = 16;

std::vector<std::int64_t> read_numbers(const JsonCursor& value, std::int64_t least,
                                       std::int64_t most) {
  std::vector<std::int64_t> numbers;
  for (const JsonCursor& element : value.elements())
    numbers.push_back(element.integer(least, most));
  return numbers;
}

std::vector<int> read_small_numbers(const JsonCursor& value, int least, int most) {
  std::vector<int> numbers;
  for (const JsonCursor& element : value.elements()) {
    numbers.push_back(static_cast<int>(element.integer(least, most)));
  }
  return numbers;
}

Tensor read_tensor(const JsonCursor& value) {
  value.only({"shape", "dims_mapping", "partial_dims"});
  Tensor tensor{.shape = read_shape(value.at("shape")), .layout = {}};
  tensor.layout.dims = read_dims_mapping(value.at("dims_mapping"));
  if (const auto partial = value.find("partial_dims")) {
    for (const int dim : read_small_numbers(*partial, 0, kMostMeshDims)) {
      tensor.layout.partial[dim] = Reduction::Sum;
    }
  }
  return tensor;
}

void read_argument(const JsonCursor& value, OperatorCall& call) {
  if (value.value().is_object() && value.find("attr")) {
    value.only({"attr"});
    call.attributes.push_back(read_attribute(value.at("attr")));
    return;
  }
  if (!call.attributes.empty()) value.fail("tensors before attributes");
  TensorArgument argument{.tensors = {}, .is_list = value.value().is_array()};
  if (argument.is_list) {
    for (const JsonCursor& element : value.elements())
      argument.tensors.push_back(read_tensor(element));
  } else {
    argument.tensors.push_back(read_tensor(value));
  }
  call.tensors.push_back(std::move(argument));
}

InferenceCase read_case(const JsonCursor& value) {
  value.only({"id", "rule", "direction", "mesh", "args", "expect", "source", "inferred_fields"});
  InferenceCase one{.id = read_name(value.at("id")), .call = {}};
  one.call.name = read_name(value.at("rule"));
  one.call.direction = read_choice<Direction>(
      value.at("direction"), {{"forward", Direction::Forward}, {"backward", Direction::Backward}});
  one.call.mesh = read_process_mesh(value.at("mesh"));
  for (const JsonCursor& element : value.at("args").elements()) read_argument(element, one.call);
  return one;
}

Json to_json(const std::vector<PlacedLayout>& layouts, const ProcessMesh& mesh) {
  Json fields = Json::object();
  for (const PlacedLayout& placed : layouts) fields[placed.place] = to_json(placed.layout, mesh);
  return fields;
}

}  // namespace

Shape read_shape(const JsonCursor& value) {
  Shape shape = read_numbers(value, -1, kMostElements);
  if (shape.size() > kMostTensorDims) value.fail("at most 16 dimensions");
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) {
    if (size > kMostElements / elements) value.fail("at most 2^40 elements");
    elements *= std::max<std::int64_t>(1, size);
  }
  return shape;
}

std::vector<std::vector<int>> read_dims_mapping(const JsonCursor& value) {
  std::vector<std::vector<int>> dims;
  for (const JsonCursor& element : value.elements()) {
    if (element.value().is_array()) {
      dims.push_back(read_small_numbers(element, 0, kMostMeshDims));
      continue;
    }
    const auto dim = static_cast<int>(element.integer(-1, kMostMeshDims));
    dims.push_back(dim == -1 ? std::vector<int>() : std::vector<int>{dim});
  }
  return dims;
}

Attribute read_attribute(const JsonCursor& value) {
  const Json& json = value.value();
  if (json.is_boolean()) return value.boolean();
  if (json.is_string()) return value.string();
  if (json.is_array()) return read_numbers(value, -kMostElements, kMostElements);
  if (json.is_number_integer()) return value.integer(-kMostElements, kMostElements);
  return value.number(-1e300, 1e300);
}

ProcessMesh read_process_mesh(const JsonCursor& value, std::string_view ranks) {
  value.only({"shape", ranks, "dim_names"});
  ProcessMesh mesh;
  mesh.shape = read_small_numbers(value.at("shape"), 1, kMostMeshProcesses);
  mesh.ranks = read_small_numbers(value.at(ranks), 0, 1 << 30);
  mesh.dim_names = names_of_dims(mesh.dims());
  if (const auto names = value.find("dim_names")) {
    mesh.dim_names.clear();
    for (const JsonCursor& name : names->elements()) mesh.dim_names.push_back(read_name(name));
  }
  parsed_at(value, [&] { return require_mesh(mesh), 0; });
  return mesh;
}

std::vector<InferenceCase> read_inference_cases(const JsonCursor& document) {
  std::vector<InferenceCase> cases;
  for (const JsonCursor& element : document.at("spmd_cases").elements()) {
    cases.push_back(read_case(element));
  }
  return cases;
}

InferenceAnswer answer_to(const InferenceCase& inference_case) {
  try {
    return {.inference = infer(inference_case.call), .refusal = {}};
  } catch (const InputError& error) {
    return {.inference = std::nullopt, .refusal = error.message()};
  }
}

Json to_json(const Layout& layout, const ProcessMesh& mesh) {
  Json mapping = Json::array(), all = Json::array();
  bool several = false;
  for (const std::vector<int>& dims : layout.dims) {
    mapping.push_back(mapping_of(dims, mesh));
    all.push_back(dims);
    several = several || dims.size() > 1;
  }
  Json fields = {{"dims_mapping", mapping}};
  if (several) fields["multi_dims_mapping"] = all;
  fields["is_partial"] = !layout.partial.empty();
  if (layout.partial.empty()) return fields;
  fields["partial_dims"] = Json::array();
  for (const auto& [dim, reduction] : layout.partial) {
    fields["partial_dims"].push_back(dim);
    fields["reduction"] = name_of(reduction);
  }
  return fields;
}

Json to_json(const InferenceAnswer& answer, const ProcessMesh& mesh) {
  if (!answer.inference) return {{"raises", answer.refusal}};
  return {{"inputs", to_json(answer.inference->inputs, mesh)},
          {"outputs", to_json(answer.inference->outputs, mesh)}};
}

}  // namespace pipewright::spmd
