#include "core/spmd/graph/graph_json.hpp"

namespace pipewright::spmd {
namespace {

Json mesh_to_json(const ProcessMesh& mesh) {
  return {{"shape", mesh.shape}, {"dim_names", mesh.dim_names}, {"ranks", mesh.ranks}};
}

Json arguments_to_json(const OperatorGraph& graph, const std::vector<GraphArgument>& arguments) {
  Json list = Json::array();
  for (const GraphArgument& argument : arguments) {
    Json names = Json::array();
    for (const auto& tensor : argument.tensors) {
      names.push_back(tensor ? Json(graph.tensors[*tensor].name) : Json());
    }
    list.push_back(argument.is_list ? std::move(names) : names.front());
  }
  return list;
}

Json layouts_to_json(const std::vector<std::optional<Layout>>& layouts) {
  Json list = Json::array();
  for (const auto& layout : layouts) list.push_back(layout ? layout_to_json(*layout) : Json());
  return list;
}

Json to_json(const TensorAnnotation& annotation, const OperatorGraph& graph) {
  Json fields = Json::object();
  if (annotation.mesh) fields["mesh"] = graph.meshes[*annotation.mesh].name;
  if (annotation.layout) fields.update(layout_to_json(*annotation.layout));
  if (annotation.chunk_id) fields["chunk_id"] = *annotation.chunk_id;
  return fields;
}

Json to_json(const OperatorAnnotation& annotation, const OperatorGraph& graph) {
  Json fields = Json::object();
  if (annotation.mesh) fields["process_mesh"] = graph.meshes[*annotation.mesh].name;
  if (!annotation.inputs.empty()) fields["inputs"] = layouts_to_json(annotation.inputs);
  if (!annotation.outputs.empty()) fields["outputs"] = layouts_to_json(annotation.outputs);
  if (annotation.impl_type) fields["impl_type"] = *annotation.impl_type;
  if (annotation.impl_idx) fields["impl_idx"] = *annotation.impl_idx;
  if (annotation.chunk_id) fields["chunk_id"] = *annotation.chunk_id;
  return fields;
}

Json to_json(const GraphOperator& one, const OperatorGraph& graph) {
  Json fields = {{"name", one.name},
                 {"rule", one.rule},
                 {"inputs", arguments_to_json(graph, one.inputs)},
                 {"outputs", arguments_to_json(graph, one.outputs)}};
  for (const Attribute& attribute : one.attributes) {
    fields["attributes"].push_back(
        std::visit([](const auto& value) { return Json(value); }, attribute));
  }
  Json annotation = to_json(one.annotation, graph);
  if (!annotation.empty()) fields["annotation"] = std::move(annotation);
  return fields;
}

}  // namespace

Json layout_to_json(const Layout& layout) {
  Json mapping = Json::array();
  for (const std::vector<int>& dims : layout.dims) {
    mapping.push_back(dims.empty() ? Json(-1) : dims.size() == 1 ? Json(dims.front()) : Json(dims));
  }
  Json fields = {{"dims_mapping", std::move(mapping)}};
  for (const auto& [dim, reduction] : layout.partial) {
    fields["partial"][std::to_string(dim)] = name_of(reduction);
  }
  return fields;
}

Json to_json(const OperatorGraph& graph) {
  Json document = {{"schema", "pipewright.graph/1"},
                   {"meshes", Json::object()},
                   {"tensors", Json::object()},
                   {"operators", Json::array()}};
  for (const NamedMesh& named : graph.meshes) {
    document["meshes"][named.name] = mesh_to_json(named.mesh);
  }
  for (const GraphTensor& tensor : graph.tensors) {
    Json& fields = document["tensors"][tensor.name];
    fields = {{"shape", tensor.shape}, {"type", tensor.type}};
    if (tensor.role != TensorRole::Activation) {
      fields["role"] = tensor.role == TensorRole::Parameter ? "parameter" : "constant";
    }
    Json annotation = to_json(tensor.annotation, graph);
    if (!annotation.empty()) fields["annotation"] = std::move(annotation);
  }
  for (const GraphOperator& one : graph.operators) {
    document["operators"].push_back(to_json(one, graph));
  }
  if (graph.optimizer != GraphOptimizer{}) document["optimizer"] = to_json(graph.optimizer);
  if (graph.pipeline) document["pipeline"] = to_json(*graph.pipeline);
  return document;
}

}  // namespace pipewright::spmd
