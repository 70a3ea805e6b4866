// pipewright spmd capture: an operator graph from an ONNX model.
#include "core/spmd/capture/capture.hpp"

#include <map>

#include "core/base/error.hpp"
#include "core/base/text_file.hpp"
#include "core/spmd/graph/graph_json.hpp"
#include "exec/spmd/graph_values.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"
#include "tools/commands/spmd/mesh_flag.hpp"

namespace pipewright::tools {
namespace {

namespace capture = spmd::capture;

/// "batch=8", several with commas between.
std::map<std::string, std::int64_t> dimensions_of(const Arguments& arguments) {
  std::map<std::string, std::int64_t> dimensions;
  for (const std::string& word : arguments.words("--dimension")) {
    const auto equals = word.rfind('=');
    if (equals == std::string::npos || equals == 0) {
      throw InputError("--dimension: expected a word and its size, such as batch=8, found \"" +
                       word + "\"");
    }
    dimensions[word.substr(0, equals)] =
        parse_integer(word.substr(equals + 1), "--dimension", 1, std::int64_t{1} << 40);
  }
  return dimensions;
}

std::int64_t elements_of(const spmd::GraphTensor& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t size : tensor.shape) count *= size;
  return count;
}

void print_graph(const spmd::OperatorGraph& graph, Session& session) {
  std::map<std::string, int> rules;
  for (const spmd::GraphOperator& one : graph.operators) ++rules[one.rule];
  Table table({{"rule"}, {"operators", Table::Align::Right}});
  for (const auto& [rule, count] : rules) table.add({rule, std::to_string(count)});
  session.print(table.text(session.terminal()));
  std::size_t parameters = 0, constants = 0;
  std::int64_t elements = 0;
  std::string inputs;
  const auto producers = producers_of(graph);
  for (std::size_t at = 0; at < graph.tensors.size(); ++at) {
    const spmd::GraphTensor& tensor = graph.tensors[at];
    if (tensor.role == spmd::TensorRole::Parameter) {
      ++parameters;
      elements += elements_of(tensor);
    } else if (tensor.role == spmd::TensorRole::Constant) {
      ++constants;
    } else if (!producers[at]) {
      inputs += (inputs.empty() ? " \"" : ", \"") + tensor.name + "\"";
    }
  }
  session.print("\n" + std::to_string(graph.operators.size()) + " operators; " +
                std::to_string(parameters) + " parameters of " + std::to_string(elements) +
                " elements, " + std::to_string(constants) + " constants; from" + inputs + "\n");
}

int run_capture(const Arguments& arguments, Session& session) {
  const std::string file = arguments.positionals().front();
  const std::string bytes = read_data(file);
  const onnx::Model model = onnx::parse_model(bytes, file);
  capture::CaptureOptions options{.dimensions = dimensions_of(arguments)};
  options.folder = std::filesystem::path(file).parent_path();
  for (const std::string& name : arguments.all("--constant")) options.constants.insert(name);
  if (const auto mesh = arguments.text("--mesh")) options.mesh = mesh_shape(*mesh);
  std::size_t ranks = 1;
  for (const int size : options.mesh) {
    ranks *= static_cast<std::size_t>(size);
    if (ranks <= spmd::kMostMeshRanks) continue;
    throw InputError("--mesh: expected at most " + std::to_string(spmd::kMostMeshRanks) + " ranks");
  }
  const capture::Captured captured = capture::captured(model, file, options);
  const Json graph = to_json(captured.graph);
  if (const auto out = arguments.text("--out")) {
    session.save(*out, graph.dump(2) + "\n");
    session.wrote(*out);
  }
  if (const auto out = arguments.text("--weights")) {
    exec::graphs::write_given_values(captured, file, options.folder, *out);
    session.wrote(*out);
  }
  if (session.json()) {
    session.print_result({{"graph", graph}});
  } else {
    print_graph(captured.graph, session);
  }
  return kDone;
}

}  // namespace

Command spmd_capture_command() {
  Command command;
  command.name = "spmd capture";
  command.summary = "an operator graph from an ONNX model";
  command.description =
      "Reads an ONNX model, as torch.onnx.export writes it, and makes each node an operator that "
      "has a rule here. What is known before the model runs is computed right away: shapes, "
      "positions, masks. Floating-point initializers are parameters, but for single numbers, what "
      "PyTorch calls a buffer, and what --constant names. A node that has no rule is refused with "
      "its place. Let the model return its loss to train the graph.";
  command.examples = {
      {"spmd capture docs/examples/gpt.onnx --dimension batch=8 -o graph.json",
       "for spmd complete, place and run"},
      {"spmd capture docs/examples/gpt.onnx --dimension batch=4 --weights weights.safetensors",
       "its weights, for spmd run --weights"},
  };
  command.positionals = {{.name = "FILE", .help = "an ONNX model", .least = 1, .most = 1}};
  command.flags = {
      {.group = "Graph",
       .name = "--dimension",
       .argument = "WORD=SIZE",
       .help = "the size that a word stands for in the shapes of inputs; several with commas",
       .repeatable = true},
      {.group = "Graph",
       .name = "--constant",
       .argument = "NAME",
       .help = "an initializer that is not trained",
       .repeatable = true},
      {.group = "Graph",
       .name = "--mesh",
       .argument = "SHAPE",
       .help = "sizes of the mesh's dimensions, such as 2x4; default: one rank"},
      {.group = "Output",
       .name = "--out",
       .argument = "FILE",
       .help = "the graph",
       .short_name = 'o',
       .is_file = true,
       .writes = Writes::File},
      {.group = "Output",
       .name = "--weights",
       .argument = "FILE",
       .help = "values of parameters and constants (safetensors)",
       .is_file = true,
       .writes = Writes::File},
  };
  command.run = run_capture;
  return command;
}

}  // namespace pipewright::tools
