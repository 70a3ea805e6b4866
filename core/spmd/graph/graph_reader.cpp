#include <algorithm>
#include <map>
#include <set>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"
#include "core/order/element_type.hpp"
#include "core/spmd/graph/graph_json.hpp"
#include "core/spmd/inference_cases.hpp"
#include "core/spmd/operators.hpp"

namespace pipewright::spmd {
namespace {

constexpr int kMostChunks = 1 << 20;

using Names = std::map<std::string, std::size_t>;

std::size_t found(const JsonCursor& value, const Names& names, const char* what) {
  const std::string name = read_name(value);
  if (const auto at = names.find(name); at != names.end()) return at->second;
  std::vector<std::string_view> known;
  for (const auto& [one, at] : names) known.push_back(one);
  value.fail(std::string("the name of one of the ") + what + did_you_mean(name, known));
}

/// {"dims_mapping": …, "partial": {"1": "sum"}} or {"placements": …}, beside other keys; nullopt
/// where there is neither.
std::optional<Layout> read_layout(const JsonCursor& value, std::size_t tensor_dims) {
  const auto mapping = value.find("dims_mapping"), placements = value.find("placements"),
             partial = value.find("partial");
  if (placements) {
    if (mapping || partial) value.fail("placements, or dims_mapping with partial, not both");
    std::vector<Placement> read;
    for (const JsonCursor& word : placements->elements()) {
      read.push_back(parsed_at(word, [&] { return placement_of(word.string()); }));
    }
    if (read.size() > kMostMeshDims) placements->fail("at most 8 placements");
    return parsed_at(*placements, [&] { return layout_of(read, tensor_dims); });
  }
  if (!mapping) {
    if (partial) value.fail("dims_mapping beside partial");
    return std::nullopt;
  }
  Layout layout{.dims = read_dims_mapping(*mapping), .partial = {}};
  if (layout.dims.size() != tensor_dims) {
    mapping->fail("an entry for each of " + std::to_string(tensor_dims) + " dimensions");
  }
  if (!partial) return layout;
  for (const auto& [dim, reduction] : partial->members()) {
    if (dim.size() != 1 || dim[0] < '0' || dim[0] >= '0' + kMostMeshDims) {
      partial->fail("dimensions of the mesh as keys, such as \"1\"");
    }
    layout.partial[dim[0] - '0'] = parsed_at(reduction, [&, &word = reduction] {
      return placement_of("P(" + word.string() + ")").reduction;
    });
  }
  return layout;
}

/// One of the mesh's that the annotation names, or of the only one: known right away to be wrong.
void require_layout_there(const JsonCursor& value, const OperatorGraph& graph,
                          std::optional<std::size_t> mesh, const GraphTensor& tensor,
                          const Layout& layout) {
  if (!mesh && graph.meshes.size() == 1) mesh = 0;
  if (!mesh) return;
  const ProcessMesh& processes = graph.meshes[*mesh].mesh;
  if (const auto placements = value.find("placements");
      placements && placements->value().size() != processes.shape.size()) {
    placements->fail("one placement for each dimension of the mesh, which has " +
                     std::to_string(processes.dims()));
  }
  parsed_at(value, [&] {
    return require_layout({tensor.shape, layout}, processes, "\"" + tensor.name + "\""), 0;
  });
}

std::optional<int> read_chunk(const JsonCursor& value) {
  const auto chunk = value.find("chunk_id");
  return chunk ? std::optional(read_count(*chunk, 0, kMostChunks)) : std::nullopt;
}

class GraphReader {
 public:
  explicit GraphReader(const JsonCursor& document) : document_(document) {}

  OperatorGraph graph() && {
    document_.only(
        {"schema", "meshes", "tensors", "operators", "optimizer", "pipeline", "reshards"});
    read_meshes(document_.at("meshes"));
    read_tensors(document_.at("tensors"));
    const JsonCursor operators = document_.at("operators");
    const auto list = operators.elements();
    if (list.size() > kMostOperators) operators.fail("at most 10000 operators");
    for (const JsonCursor& value : list) read_operator(value);
    parsed_at(operators, [&] { return ordered_operators(graph_); });
    if (const auto optimizer = document_.find("optimizer")) {
      graph_.optimizer = read_optimizer(*optimizer);
      parsed_at(*optimizer, [&] { return require_sharding(graph_.optimizer, graph_.meshes), 0; });
    }
    if (const auto pipeline = document_.find("pipeline"))
      graph_.pipeline = read_pipeline(*pipeline);
    return std::move(graph_);
  }

 private:
  void read_meshes(const JsonCursor& value) {
    const auto members = value.members();
    if (members.empty()) value.fail("a mesh");
    if (members.size() > kMostGraphMeshes) value.fail("at most 256 meshes");
    for (const auto& [name, mesh] : members) {
      mesh.only({"shape", "dim_names", "ranks"});
      meshes_[checked_name(mesh, name)] = graph_.meshes.size();
      graph_.meshes.push_back({name, read_process_mesh(mesh, "ranks")});
      if (graph_.meshes.back().mesh.ranks.size() > kMostMeshRanks) {
        mesh.at("ranks").fail("at most 64 processes");
      }
    }
  }

  /// A key that is a name as read_name() takes them.
  static const std::string& checked_name(const JsonCursor& value, const std::string& name) {
    const Json text = name;
    (void)read_name(JsonCursor(text, value.file(), value.pointer()));
    return name;
  }

  void read_tensors(const JsonCursor& value) {
    const auto members = value.members();
    if (members.size() > kMostTensors) value.fail("at most 10000 tensors");
    for (const auto& [name, fields] : members) {
      fields.only({"shape", "type", "role", "annotation"});
      GraphTensor tensor{.name = checked_name(fields, name),
                         .shape = read_shape(fields.at("shape")),
                         .type = read_name(fields.at("type")),
                         .role = read_role(fields),
                         .annotation = {}};
      for (const JsonCursor& size : fields.at("shape").elements()) {
        if (size.value() < 1) size.fail("1 or more");
      }
      if (tensor.shape.size() > kMostGraphDims) fields.at("shape").fail("at most 8 dimensions");
      if (element_type(tensor.type) == nullptr) {
        fields.at("type").fail("a type such as \"float32\"" +
                               did_you_mean(tensor.type, element_type_names()));
      }
      if (const auto annotation = fields.find("annotation")) read_annotation(*annotation, tensor);
      tensors_[name] = graph_.tensors.size();
      graph_.tensors.push_back(std::move(tensor));
    }
  }

  static TensorRole read_role(const JsonCursor& tensor) {
    const auto role = tensor.find("role");
    if (!role) return TensorRole::Activation;
    if (role->string() == "parameter") return TensorRole::Parameter;
    if (role->string() == "constant") return TensorRole::Constant;
    role->fail("\"parameter\" or \"constant\"");
  }

  void read_annotation(const JsonCursor& value, GraphTensor& tensor) {
    value.only({"mesh", "dims_mapping", "placements", "partial", "chunk_id"});
    TensorAnnotation& annotation = tensor.annotation;
    if (const auto mesh = value.find("mesh")) annotation.mesh = found(*mesh, meshes_, "meshes");
    annotation.layout = read_layout(value, tensor.shape.size());
    annotation.chunk_id = read_chunk(value);
    if (!annotation.layout) return;
    require_layout_there(value, graph_, annotation.mesh, tensor, *annotation.layout);
  }

  void read_operator(const JsonCursor& value) {
    value.only({"name", "rule", "inputs", "outputs", "attributes", "annotation"});
    GraphOperator one{.name = read_name(value.at("name")),
                      .rule = read_name(value.at("rule")),
                      .inputs = read_arguments(value.at("inputs")),
                      .outputs = read_arguments(value.at("outputs"))};
    if (!names_.insert(one.name).second) {
      value.at("name").fail("a name that no other operator has");
    }
    parsed_at(value.at("rule"), [&] { return operator_named(one.rule), 0; });
    require_first(value.at("inputs"), one.inputs);
    take_outputs(value.at("outputs"), one);
    if (const auto attributes = value.find("attributes")) {
      for (const JsonCursor& attribute : attributes->elements()) {
        one.attributes.push_back(read_attribute(attribute));
      }
    }
    parsed_at(value, [&] { return require_shapes(graph_, one), 0; });
    if (const auto annotation = value.find("annotation")) read_annotation(*annotation, one);
    graph_.operators.push_back(std::move(one));
  }

  GraphArgument read_argument(const JsonCursor& value) const {
    GraphArgument argument{.tensors = {}, .is_list = value.value().is_array()};
    if (!argument.is_list) {
      argument.tensors.push_back(tensor_of(value));
      return argument;
    }
    for (const JsonCursor& element : value.elements()) {
      if (element.value().is_null()) element.fail("a tensor");
      argument.tensors.push_back(tensor_of(element));
    }
    return argument;
  }

  std::optional<std::size_t> tensor_of(const JsonCursor& value) const {
    if (value.value().is_null()) return std::nullopt;
    return found(value, tensors_, "tensors");
  }

  std::vector<GraphArgument> read_arguments(const JsonCursor& value) const {
    std::vector<GraphArgument> arguments;
    for (const JsonCursor& element : value.elements()) arguments.push_back(read_argument(element));
    return arguments;
  }

  static void require_first(const JsonCursor& value, const std::vector<GraphArgument>& arguments) {
    const auto tensors = tensors_of(arguments);
    if (tensors.empty() || !tensors.front()) value.fail("a tensor first");
  }

  void take_outputs(const JsonCursor& value, const GraphOperator& one) {
    require_first(value, one.outputs);
    for (const auto& tensor : tensors_of(one.outputs)) {
      if (!tensor) continue;
      const auto [maker, fresh] = makers_.emplace(*tensor, one.name);
      if (!fresh) {
        value.fail("tensors that no other operator makes; \"" + graph_.tensors[*tensor].name +
                   "\" is an output of \"" + maker->second + "\"");
      }
      if (graph_.tensors[*tensor].role != TensorRole::Activation) {
        value.fail("tensors without a role; \"" + graph_.tensors[*tensor].name + "\" has one");
      }
    }
  }

  void read_annotation(const JsonCursor& value, GraphOperator& one) {
    value.only({"process_mesh", "inputs", "outputs", "impl_type", "impl_idx", "chunk_id"});
    OperatorAnnotation& annotation = one.annotation;
    if (const auto mesh = value.find("process_mesh")) {
      annotation.mesh = found(*mesh, meshes_, "meshes");
    }
    annotation.inputs = read_layouts(value, "inputs", annotation.mesh, one.inputs);
    annotation.outputs = read_layouts(value, "outputs", annotation.mesh, one.outputs);
    if (const auto type = value.find("impl_type")) annotation.impl_type = read_name(*type);
    if (const auto index = value.find("impl_idx")) {
      annotation.impl_idx = read_count(*index, 0, kMostChunks);
    }
    annotation.chunk_id = read_chunk(value);
  }

  std::vector<std::optional<Layout>> read_layouts(const JsonCursor& value, const char* key,
                                                  std::optional<std::size_t> mesh,
                                                  const std::vector<GraphArgument>& arguments) {
    const auto list = value.find(key);
    if (!list) return {};
    const auto tensors = tensors_of(arguments);
    const auto elements = list->elements();
    if (elements.size() != tensors.size()) {
      list->fail("a layout or null for each of " + std::to_string(tensors.size()) + " tensors");
    }
    std::vector<std::optional<Layout>> layouts;
    for (std::size_t at = 0; at < elements.size(); ++at) {
      layouts.emplace_back();
      if (elements[at].value().is_null()) continue;
      if (!tensors[at]) elements[at].fail("null, as the tensor is");
      elements[at].only({"dims_mapping", "placements", "partial"});
      const GraphTensor& tensor = graph_.tensors[*tensors[at]];
      layouts.back() = read_layout(elements[at], tensor.shape.size());
      if (!layouts.back()) elements[at].fail("dims_mapping or placements");
      require_layout_there(elements[at], graph_, mesh, tensor, *layouts.back());
    }
    return layouts;
  }

  const JsonCursor& document_;
  OperatorGraph graph_;
  Names meshes_, tensors_;
  std::set<std::string> names_;                // of operators
  std::map<std::size_t, std::string> makers_;  // of tensors
};

}  // namespace

OperatorGraph read_graph(const JsonCursor& document) {
  require_schema(document, "graph");
  return GraphReader(document).graph();
}

}  // namespace pipewright::spmd
