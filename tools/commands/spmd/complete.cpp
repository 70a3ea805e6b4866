// pipewright spmd complete: how everything lies in a graph of which a little is annotated.
#include "core/base/error.hpp"
#include "core/order/element_type.hpp"
#include "core/spmd/graph/explanation.hpp"
#include "core/spmd/graph/graph_json.hpp"
#include "core/spmd/reshard_cases.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"
#include "tools/commands/spmd/pipeline_flags.hpp"

namespace pipewright::tools {
namespace {

std::string sizes_text(const spmd::Shape& shape) {
  return shape.empty() ? "scalar" : shape_text(shape);
}

void print_tensors(const spmd::Completion& completion, const spmd::OperatorGraph& given,
                   Session& session) {
  Table table({{"tensor"}, {"shape"}, {"mesh"}, {"layout"}, {"annotated"}});
  for (std::size_t at = 0; at < given.tensors.size(); ++at) {
    const spmd::GraphTensor& tensor = completion.graph.tensors[at];
    const spmd::NamedMesh& mesh = completion.graph.meshes[*tensor.annotation.mesh];
    const spmd::TensorAnnotation& before = given.tensors[at].annotation;
    table.add({tensor.name, sizes_text(tensor.shape), mesh.name,
               text_of(*tensor.annotation.layout, mesh.mesh),
               before.layout ? "layout"
               : before.mesh ? "mesh"
                             : ""});
  }
  session.print(table.text(session.terminal()));
}

std::string optional_layouts_text(const std::vector<std::optional<spmd::Layout>>& layouts,
                                  const spmd::ProcessMesh& mesh) {
  std::string text;
  for (const std::optional<spmd::Layout>& layout : layouts) {
    if (layout) text += (text.empty() ? "" : ", ") + text_of(*layout, mesh);
  }
  return text;
}

void print_operators(const spmd::Completion& completion, Session& session) {
  Table table({{"operator"}, {"rule"}, {"mesh"}, {"takes"}, {"makes"}, {"as"}, {"chunk"}});
  for (const spmd::GraphOperator& one : completion.graph.operators) {
    const spmd::NamedMesh& mesh = completion.graph.meshes[*one.annotation.mesh];
    table.add({one.name, one.rule, mesh.name,
               optional_layouts_text(one.annotation.inputs, mesh.mesh),
               optional_layouts_text(one.annotation.outputs, mesh.mesh),
               *one.annotation.impl_type + " " + std::to_string(*one.annotation.impl_idx),
               std::to_string(*one.annotation.chunk_id)});
  }
  session.print(table.text(session.terminal()));
}

void print_graph_reshards(const std::vector<spmd::GraphReshard>& reshards,
                          const spmd::OperatorGraph& graph, Session& session) {
  Table table(
      {{"tensor"}, {"between"}, {"from"}, {"to"}, {"bytes", Table::Align::Right}, {"steps"}});
  for (const spmd::GraphReshard& reshard : reshards) {
    const spmd::NamedMesh &from = graph.meshes[reshard.from_mesh],
                          &to = graph.meshes[reshard.to_mesh];
    const bool moves = reshard.from_mesh != reshard.to_mesh;
    std::string between = reshard.is_made ? "made by" : "taken by";
    for (const std::size_t at : reshard.operators) between += " " + graph.operators[at].name;
    table.add({graph.tensors[reshard.tensor].name, between,
               (moves ? from.name + ": " : "") + text_of(reshard.from, from.mesh),
               (moves ? to.name + ": " : "") + text_of(reshard.to, to.mesh),
               std::to_string(reshard.plan.bytes), spmd::text_of(reshard.plan.steps)});
  }
  session.print(table.text(session.terminal()));
}

void print_parts(const spmd::Completion& completion, Session& session) {
  Table table({{"part", Table::Align::Right},
               {"stage", Table::Align::Right},
               {"chunk", Table::Align::Right},
               {"mesh"},
               {"layers"}});
  const auto& parts = completion.meshes.parts;
  for (std::size_t at = 0; at < parts.size(); ++at) {
    const auto& layers = parts[at].layers;
    table.add({std::to_string(at), std::to_string(parts[at].stage), std::to_string(parts[at].chunk),
               completion.graph.meshes[parts[at].mesh].name,
               layers.front() + (layers.size() > 1 ? " to " + layers.back() : "")});
  }
  session.print(table.text(session.terminal()));
}

/// "dp" or "dp and tp".
std::string dim_names(const std::vector<int>& dims, const spmd::ProcessMesh& mesh) {
  std::string text;
  for (const int dim : dims) {
    text += (text.empty() ? "" : " and ") + mesh.dim_names[static_cast<std::size_t>(dim)];
  }
  return text;
}

void print_explanation(const spmd::Explanation& explanation, const spmd::OperatorGraph& graph,
                       Session& session) {
  const spmd::GraphTensor& tensor = graph.tensors[explanation.tensor];
  const spmd::NamedMesh& mesh = graph.meshes[*tensor.annotation.mesh];
  const auto line = [&](const std::string& text, int indent) {
    session.print(wrapped(text, session.terminal().width, indent));
  };
  line("\"" + tensor.name + "\", " + sizes_text(tensor.shape) + ", lies on mesh \"" + mesh.name +
           "\" as " + text_of(*tensor.annotation.layout, mesh.mesh),
       0);
  for (const spmd::ExplainedDimension& one : explanation.dimensions) {
    const auto axis = static_cast<std::size_t>(one.axis);
    const std::vector<int>& dims = tensor.annotation.layout->dims[axis];
    line("dimension " + std::to_string(one.axis) + " (" + std::to_string(tensor.shape[axis]) +
             ") is " + (dims.empty() ? "whole" : "divided by " + dim_names(dims, mesh.mesh)),
         0);
    for (const auto& chain : one.divided_by) {
      for (const spmd::Reason& reason : chain) line(text_of(reason, graph), 4);
    }
    for (const auto& chain : one.not_divided_by) {
      line("not by " + dim_names({chain.front().division.mesh_dim}, mesh.mesh) +
               ", which would follow: it divides another dimension, or an annotation says "
               "otherwise",
           4);
      for (const spmd::Reason& reason : chain) line(text_of(reason, graph), 8);
    }
  }
  if (!explanation.chunk.empty()) line(explanation.chunk, 0);
  if (!explanation.reshards.empty()) print_graph_reshards(explanation.reshards, graph, session);
}

void print_completion(const spmd::Completion& completion, const spmd::OperatorGraph& given,
                      Session& session) {
  print_tensors(completion, given, session);
  session.print("\n");
  print_operators(completion, session);
  session.print("\n");
  if (!completion.meshes.parts.empty()) {
    print_parts(completion, session);
    session.print("\n");
  }
  if (completion.reshards.empty()) {
    session.print("no reshards\n");
    return;
  }
  print_graph_reshards(completion.reshards, completion.graph, session);
}

int run_complete(const Arguments& arguments, Session& session) {
  const std::string file = arguments.positionals().front();
  const Json json = parse_json(read_text(file), file);
  spmd::OperatorGraph given = spmd::read_graph(JsonCursor(json, file));
  take_pipeline_flags(arguments, given);
  const spmd::Completion completion = spmd::completed(given);
  const auto wanted = arguments.text("--explain");
  const auto explanation =
      wanted ? std::optional(spmd::explained(completion, *wanted)) : std::nullopt;
  if (const auto out = arguments.text("--out")) {
    session.save(*out, to_text(to_json(completion)));
    session.wrote(*out);
  }
  if (session.json()) {
    Json fields = {{"graph", to_json(completion)},
                   {"reshard_bytes", bytes_of(completion.reshards)},
                   {"sweeps", completion.why.sweeps}};
    if (!completion.meshes.parts.empty()) fields["parts"] = parts_to_json(completion);
    if (explanation) fields["explanation"] = to_json(*explanation, completion.graph);
    session.print_result(fields);
  } else if (explanation) {
    print_explanation(*explanation, completion.graph, session);
  } else {
    print_completion(completion, given, session);
  }
  return kDone;
}

}  // namespace

Command spmd_complete_command() {
  Command command;
  command.name = "spmd complete";
  command.summary = "the layouts of a whole operator graph from a few annotations";
  command.description =
      "Reads an operator graph (pipewright.graph/1): meshes, tensors, operators, and annotations "
      "of some of them. What follows for the others by the operators' rules, forward and backward, "
      "is found until nothing more follows; no annotation is changed. Where a tensor is made or "
      "taken otherwise than it lies, a reshard stands, with its steps and bytes. Where the stages "
      "of "
      "a pipeline have chunks, the chunk and mesh of every operator follow from its layers.";
  command.examples = {
      {"spmd complete examples/graph-mlp.json", "tensors, operators, reshards"},
      {"spmd complete examples/graph-mlp.json --explain hidden", "why a tensor is divided so"},
      {"spmd complete examples/graph-chunks.json --vpp-degree 2",
       "two chunks on each of two stages"},
  };
  command.positionals = {
      {.name = "FILE", .help = "an operator graph; - is standard input", .least = 1, .most = 1}};
  command.flags = {
      {.group = "Output",
       .name = "--explain",
       .argument = "TENSOR",
       .help = "why each dimension of this tensor lies as it does, back to the annotations"},
      {.group = "Output",
       .name = "--out",
       .argument = "FILE",
       .help = "the completed graph, as a file that can be read again",
       .short_name = 'o',
       .is_file = true,
       .writes = Writes::File},
  };
  for (Flag& flag : pipeline_flags()) command.flags.push_back(std::move(flag));
  command.run = run_complete;
  return command;
}

}  // namespace pipewright::tools
