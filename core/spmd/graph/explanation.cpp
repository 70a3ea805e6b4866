#include "core/spmd/graph/explanation.hpp"

#include <set>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"
#include "core/spmd/graph/rule_answers.hpp"

namespace pipewright::spmd {
namespace {

std::string dimension_text(const DividedDimension& division, const OperatorGraph& graph) {
  return "dimension " + std::to_string(division.axis) + " of " +
         in_quotes(graph.tensors[division.tensor.tensor].name);
}

/// Back to an annotation, of a tensor or of the operator that came last.
std::vector<Reason> chain_from(const Propagation& why, DividedDimension division, Cause cause) {
  std::vector<Reason> chain;
  std::set<DividedDimension> seen;
  while (true) {
    chain.push_back({division, cause});
    if (!cause.from || !seen.insert(division).second) return chain;
    division = *cause.from;
    const auto before = why.causes.find(division);
    if (before == why.causes.end()) {
      cause = {.kind = Cause::Kind::OperatorAnnotation, .operator_at = cause.operator_at};
    } else {
      cause = before->second;
    }
  }
}

std::size_t tensor_named(const OperatorGraph& graph, const std::string& name) {
  std::vector<std::string_view> names;
  for (std::size_t at = 0; at < graph.tensors.size(); ++at) {
    if (graph.tensors[at].name == name) return at;
    names.push_back(graph.tensors[at].name);
  }
  throw InputError("the graph has no tensor " + in_quotes(name) + did_you_mean(name, names));
}

const char* word_of(Cause::Kind kind) {
  switch (kind) {
    case Cause::Kind::Annotation:
      return "annotation";
    case Cause::Kind::OperatorAnnotation:
      return "operator_annotation";
    case Cause::Kind::Rule:
      return "rule";
    case Cause::Kind::OtherMesh:
      break;
  }
  return "other_mesh";
}

Json to_json(const Reason& reason, const OperatorGraph& graph) {
  const DividedDimension& division = reason.division;
  const NamedMesh& mesh = graph.meshes[division.tensor.mesh];
  Json fields = {{"tensor", graph.tensors[division.tensor.tensor].name},
                 {"dimension", division.axis},
                 {"mesh", mesh.name},
                 {"mesh_dim", division.mesh_dim},
                 {"because", word_of(reason.cause.kind)}};
  if (reason.cause.kind == Cause::Kind::Rule) {
    const bool forward = reason.cause.direction == Direction::Forward;
    fields["direction"] = forward ? "forward" : "backward";
  }
  if (reason.cause.kind == Cause::Kind::Rule ||
      reason.cause.kind == Cause::Kind::OperatorAnnotation) {
    fields["operator"] = graph.operators[reason.cause.operator_at].name;
  }
  return fields;
}

Json chains_to_json(const std::vector<std::vector<Reason>>& chains, const OperatorGraph& graph) {
  Json list = Json::array();
  for (const std::vector<Reason>& chain : chains) {
    Json reasons = Json::array();
    for (const Reason& reason : chain) reasons.push_back(to_json(reason, graph));
    list.push_back(std::move(reasons));
  }
  return list;
}

std::string chunk_text(const Completion& completion, std::size_t tensor) {
  const GraphMeshes& meshes = completion.meshes;
  if (meshes.parts.empty()) return "";
  const auto from = meshes.chunk_from[tensor];
  const std::string chunk = "chunk " + std::to_string(meshes.tensor_chunks[tensor]);
  if (!from) return chunk + ": no operator takes or makes it on its mesh";
  const std::size_t part = meshes.part_of_operators[*from];
  const PipelinePart& one = meshes.parts[part];
  std::string stages;
  for (const PipelinePart& other : meshes.parts) stages += " " + std::to_string(other.stage);
  return chunk + " with operator " + in_quotes(completion.graph.operators[*from].name) +
         ", which is in part " + std::to_string(part) + ", layers " +
         in_quotes(one.layers.front()) + " to " + in_quotes(one.layers.back()) + ", on stage " +
         std::to_string(one.stage) + "; the stages of all parts:" + stages;
}

}  // namespace

Explanation explained(const Completion& completion, const std::string& tensor) {
  const OperatorGraph& graph = completion.graph;
  const std::size_t at = tensor_named(graph, tensor);
  const TensorOnMesh home{at, *graph.tensors[at].annotation.mesh};
  const Layout& layout = *graph.tensors[at].annotation.layout;
  Explanation explanation{.tensor = at};
  for (std::size_t axis = 0; axis < layout.dims.size(); ++axis) {
    ExplainedDimension one{.axis = static_cast<int>(axis)};
    for (const int dim : layout.dims[axis]) {
      const DividedDimension division{home, one.axis, dim};
      one.divided_by.push_back(
          chain_from(completion.why, division, completion.why.causes.at(division)));
    }
    for (const auto& [division, cause] : completion.why.refused) {
      const bool is_here = division.tensor == home && division.axis == one.axis;
      if (!is_here || divides(layout, one.axis, division.mesh_dim)) continue;
      one.not_divided_by.push_back(chain_from(completion.why, division, cause));
    }
    explanation.dimensions.push_back(std::move(one));
  }
  for (const GraphReshard& reshard : completion.reshards) {
    if (reshard.tensor == at) explanation.reshards.push_back(reshard);
  }
  explanation.chunk = chunk_text(completion, at);
  return explanation;
}

std::string text_of(const Reason& reason, const OperatorGraph& graph) {
  const Cause& cause = reason.cause;
  const std::string dimension = dimension_text(reason.division, graph);
  switch (cause.kind) {
    case Cause::Kind::Annotation:
      return dimension + " is annotated";
    case Cause::Kind::OperatorAnnotation:
      return dimension + " is annotated at operator " +
             in_quotes(graph.operators[cause.operator_at].name);
    case Cause::Kind::OtherMesh:
      return dimension + " from mesh " + in_quotes(graph.meshes[cause.from->tensor.mesh].name);
    case Cause::Kind::Rule:
      break;
  }
  const GraphOperator& one = graph.operators[cause.operator_at];
  const bool forward = cause.direction == Direction::Forward;
  std::string text = dimension + " by " + one.rule + " " + in_quotes(one.name) +
                     (forward ? ", forward" : ", backward");
  if (cause.from) text += ", from " + dimension_text(*cause.from, graph);
  return text;
}

Json to_json(const Explanation& explanation, const OperatorGraph& graph) {
  const GraphTensor& tensor = graph.tensors[explanation.tensor];
  Json fields = {{"tensor", tensor.name},
                 {"mesh", graph.meshes[*tensor.annotation.mesh].name},
                 {"dimensions", Json::array()},
                 {"reshards", Json::array()}};
  for (const ExplainedDimension& one : explanation.dimensions) {
    fields["dimensions"].push_back({{"dimension", one.axis},
                                    {"size", tensor.shape[static_cast<std::size_t>(one.axis)]},
                                    {"divided_by", chains_to_json(one.divided_by, graph)},
                                    {"not_divided_by", chains_to_json(one.not_divided_by, graph)}});
  }
  for (const GraphReshard& reshard : explanation.reshards) {
    fields["reshards"].push_back(to_json(reshard, graph));
  }
  if (!explanation.chunk.empty()) fields["chunk"] = explanation.chunk;
  return fields;
}

}  // namespace pipewright::spmd
