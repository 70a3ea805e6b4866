// pipewright spmd: how tensors lie on a mesh of processes, and where layers and stages are.
#include <functional>

#include "core/base/error.hpp"
#include "core/spmd/inference_cases.hpp"
#include "core/spmd/placement_cases.hpp"
#include "core/spmd/reshard_cases.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"

namespace pipewright::tools {
namespace {

using spmd::InferenceAnswer;
using spmd::InferenceCase;
using spmd::PlacedLayout;

std::string layouts_text(const std::vector<PlacedLayout>& layouts, const spmd::ProcessMesh& mesh) {
  std::string text;
  for (const PlacedLayout& placed : layouts) {
    text += (text.empty() ? "" : ", ") + text_of(placed.layout, mesh);
  }
  return text;
}

void print_inferences(const std::vector<InferenceCase>& cases, Session& session) {
  Table table({{"case"}, {"operator"}, {"mesh"}, {"inputs"}, {"outputs"}});
  std::string refusals;
  for (const InferenceCase& one : cases) {
    const InferenceAnswer answer = spmd::answer_to(one);
    const spmd::ProcessMesh& mesh = one.call.mesh;
    const bool backward = one.call.direction == spmd::Direction::Backward;
    const std::string name = one.call.name + (backward ? ", backward" : "");
    if (!answer.inference) {
      table.add({one.id, name, text_of(mesh), "refused", ""}, Ink::Red);
      refusals += wrapped(one.id + ": " + answer.refusal, session.terminal().width, 0);
      continue;
    }
    table.add({one.id, name, text_of(mesh), layouts_text(answer.inference->inputs, mesh),
               layouts_text(answer.inference->outputs, mesh)});
  }
  session.print(table.text(session.terminal()));
  if (!refusals.empty()) session.print("\n" + refusals);
}

/// What `read` makes of the file that the command names.
template <class Read>
auto read_cases(const Arguments& arguments, Read read) {
  const std::string file = arguments.positionals().front();
  const Json json = parse_json(read_text(file), file);
  return read(JsonCursor(json, file));
}

/// A list under this key, with an element for each case.
void print_answers(const char* key, std::size_t cases,
                   const std::function<Json(std::size_t)>& answer, Session& session) {
  const JsonList list{.key = key, .size = cases, .element = answer};
  session.print_result({{key, Json::array()}}, list);
}

int run_infer(const Arguments& arguments, Session& session) {
  const auto cases = read_cases(arguments, spmd::read_inference_cases);
  if (!session.json()) {
    print_inferences(cases, session);
    return kDone;
  }
  const auto answer = [&](std::size_t at) {
    return Json{{"id", cases[at].id},
                {"expect", to_json(answer_to(cases[at]), cases[at].call.mesh)}};
  };
  print_answers("spmd_cases", cases.size(), answer, session);
  return kDone;
}

/// "2 3": ranks or sizes beside each other.
std::string joined(const Json& numbers, const char* between) {
  std::string text;
  for (const Json& number : numbers) text += (text.empty() ? "" : between) + number.dump();
  return text;
}

/// One row for each run of layers on the same ranks.
void add_layers(std::size_t number, const spmd::LayerCase& one, const Json& answer, Table& table) {
  const std::string name = std::to_string(number);
  if (answer.contains("raises")) {
    table.add({name, one.placement.schedule, "refused", answer.at("raises").get<std::string>()},
              Ink::Red);
    return;
  }
  for (auto first = answer.begin(); first != answer.end();) {
    auto last = first, next = std::next(first);
    while (next != answer.end() && next.value() == first.value()) last = next++;
    const std::string layers = first == last ? first.key() : first.key() + "-" + last.key();
    table.add({name, one.placement.schedule, layers, joined(first.value(), " ")});
    first = next;
  }
}

int run_layers(const Arguments& arguments, Session& session) {
  const auto cases = read_cases(arguments, spmd::read_layer_cases);
  if (session.json()) {
    const auto answer = [&](std::size_t at) {
      return Json{{"expect", spmd::answer_to(cases[at])}};
    };
    print_answers("layer_to_mesh_cases", cases.size(), answer, session);
    return kDone;
  }
  Table table({{"case"}, {"schedule"}, {"layers"}, {"ranks"}});
  for (std::size_t at = 0; at < cases.size(); ++at) {
    add_layers(at, cases[at], spmd::answer_to(cases[at]), table);
  }
  session.print(table.text(session.terminal()));
  return kDone;
}

int run_cut(const Arguments& arguments, Session& session) {
  const Json answers = read_cases(arguments, spmd::cluster_answers);
  if (session.json()) {
    session.print_result({{"cluster_partition", answers}});
    return kDone;
  }
  Table table({{"machines and devices"}, {"as"}, {"ways"}});
  for (const auto& [key, ways] : answers.at("device_meshes").items()) {
    for (const Json& way : ways) {
      std::string stages;
      for (const Json& stage : way) stages += (stages.empty() ? "" : ", ") + joined(stage, "x");
      table.add({key, "stages", stages});
    }
  }
  for (const auto& [key, shapes] : answers.at("process_meshes").items()) {
    for (const Json& shape : shapes) table.add({key, "mesh", joined(shape, "x")});
  }
  session.print(table.text(session.terminal()));
  return kDone;
}

spmd::ReshardPlan plan_of(const spmd::ReshardCase& one) {
  return spmd::cheapest_reshard(one.shape, one.from, one.to);
}

void print_reshards(const std::vector<spmd::ReshardCase>& cases, Session& session) {
  using Align = Table::Align;
  Table table({{"case"}, {"from"}, {"to"}, {"bytes", Align::Right}, {"steps"}});
  const auto text = [](const spmd::Distribution& side) {
    return text_of(side.mesh) + ": " + text_of(side.layout, side.mesh);
  };
  for (const spmd::ReshardCase& one : cases) {
    const spmd::ReshardPlan plan = plan_of(one);
    table.add({one.id, text(one.from), text(one.to), std::to_string(plan.bytes),
               spmd::text_of(plan.steps)});
  }
  session.print(table.text(session.terminal()));
}

int run_reshard(const Arguments& arguments, Session& session) {
  const auto cases = read_cases(arguments, spmd::read_reshard_cases);
  if (!session.json()) {
    print_reshards(cases, session);
    return kDone;
  }
  const auto answer = [&](std::size_t at) {
    return Json{{"id", cases[at].id}, {"expect", answer_to(cases[at], plan_of(cases[at]))}};
  };
  print_answers("reshard_cases", cases.size(), answer, session);
  return kDone;
}

/// One that reads a file of cases; without its description.
Command command_on_cases(const char* name, const char* summary,
                         int (*run)(const Arguments&, Session&)) {
  Command command;
  command.name = name;
  command.summary = summary;
  command.positionals = {
      {.name = "FILE", .help = "a file of cases; - is standard input", .least = 1, .most = 1}};
  command.run = run;
  return command;
}

Command layers_command() {
  Command command = command_on_cases(
      "spmd layers", "which part of a mesh each layer of a model is on", run_layers);
  command.description =
      "Reads \"layer_to_mesh_cases\": layers, a mesh as lists of ranks with the names of its "
      "dimensions, of which one is \"pp\", and a schedule: 1F1B and GPIPE divide the layers over "
      "the stages, VPP over \"vpp_degree\" chunks of each. Prints the ranks of every layer.";
  command.examples = {{"spmd layers examples/spmd-layers.json", "eight layers on four stages"}};
  return command;
}

Command cut_command() {
  Command command = command_on_cases(
      "spmd partition", "ways to cut a cluster into stages, and meshes of their devices", run_cut);
  command.description =
      "Reads \"cluster_partition\": of each key of \"device_meshes\" (machines x devices of "
      "each) the ways to cut that cluster into the stages of a pipeline, of each key of "
      "\"process_meshes\" the shapes of a mesh of these devices: those that PaddlePaddle's "
      "rule-based tuner tries.";
  command.examples = {{"spmd partition examples/spmd-layers.json", "sixteen machines of eight"}};
  return command;
}

Command reshard_command() {
  Command command = command_on_cases(
      "spmd reshard", "the cheapest way from one layout of a tensor to another", run_reshard);
  command.description =
      "Reads \"reshard_cases\": a shape, and a mesh with placements before (\"in\") and after "
      "(\"out\"); the meshes may differ in shape and ranks. Prints the collectives and transfers "
      "between, the bytes that the busiest process sends or receives in each, and with --json what "
      "every rank has in the end. A sequence costs its bytes (of fp32 elements), and 1024 more for "
      "each collective and for each message of a busiest process; no other costs less.";
  command.examples = {{"spmd reshard examples/spmd-reshard.json", "steps and bytes"}};
  return command;
}

Command infer_command() {
  Command command = command_on_cases(
      "spmd infer", "the layouts that operators need and leave, case by case", run_infer);
  command.description =
      "Reads \"spmd_cases\" in the notation of PaddlePaddle's SPMD rules: an operator, a mesh, its "
      "tensors with dims_mapping, its attributes. Forward, layouts of inputs decide those of "
      "outputs, backward the other way round. Of each case it prints a placement for every "
      "dimension of the mesh: R (replicated), S1 (divided along dimension 1), P(sum) (to be "
      "summed). "
      "A case that contradicts itself is refused, with a sentence; the exit status is 0 then too.";
  command.examples = {{"spmd infer examples/spmd-cases.json", "placements as a table"},
                      {"spmd infer examples/spmd-cases.json --json", "the same as dims_mapping"}};
  return command;
}

}  // namespace

Command spmd_command() {
  Command command;
  command.name = "spmd";
  command.summary = "distributed tensors: layouts, whole graphs, reshards, layers on meshes";
  command.examples = {{"spmd infer examples/spmd-cases.json", "what operators need and leave"},
                      {"spmd capture docs/examples/gpt.onnx --dimension batch=8",
                       "a graph of a model from PyTorch"},
                      {"spmd complete examples/graph-mlp.json", "the layouts of a whole graph"},
                      {"spmd place examples/graph-mlp.json", "the cheapest way to divide it"},
                      {"spmd run docs/examples/data-parallel.json", "training it on its ranks"},
                      {"spmd layers examples/spmd-layers.json", "where each layer is"}};
  command.children = {infer_command(),      spmd_capture_command(), spmd_complete_command(),
                      spmd_place_command(), spmd_run_command(),     reshard_command(),
                      layers_command(),     cut_command()};
  return command;
}

}  // namespace pipewright::tools
