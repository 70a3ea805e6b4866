// pipewright spmd: how tensors lie on a mesh of processes, inferred operator by operator.
#include "core/base/error.hpp"
#include "core/spmd/cases.hpp"
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

/// "S0 R", one placement for each dimension of the mesh.
std::string placements_text(const spmd::Layout& layout, const spmd::ProcessMesh& mesh) {
  std::string text;
  for (const spmd::Placement& placement : spmd::placements_of(layout, mesh)) {
    text += (text.empty() ? "" : " ") + text_of(placement);
  }
  return text;
}

std::string layouts_text(const std::vector<PlacedLayout>& layouts, const spmd::ProcessMesh& mesh) {
  std::string text;
  for (const PlacedLayout& placed : layouts) {
    text += (text.empty() ? "" : ", ") + placements_text(placed.layout, mesh);
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

int run_infer(const Arguments& arguments, Session& session) {
  const std::string file = arguments.positionals().front();
  const Json json = parse_json(read_text(file), file);
  const std::vector<InferenceCase> cases = spmd::read_inference_cases(JsonCursor(json, file));
  if (!session.json()) {
    print_inferences(cases, session);
    return kDone;
  }
  const JsonList list{.key = "spmd_cases", .size = cases.size(), .element = [&](std::size_t at) {
                        return Json{{"id", cases[at].id},
                                    {"expect", to_json(answer_to(cases[at]), cases[at].call.mesh)}};
                      }};
  session.print_result({{"spmd_cases", Json::array()}}, list);
  return kDone;
}

Command infer_command() {
  Command command;
  command.name = "spmd infer";
  command.summary = "the layouts that operators need and leave, case by case";
  command.description =
      "Reads \"spmd_cases\" in the notation of PaddlePaddle's SPMD rules: an operator, a mesh, its "
      "tensors with dims_mapping, its attributes. Forward, layouts of inputs decide those of "
      "outputs, backward the other way round. Of each case it prints a placement for every "
      "dimension of the mesh: R (replicated), S1 (divided along dimension 1), P(sum) (to be "
      "summed). "
      "A case that contradicts itself is refused, with a sentence; the exit status is 0 then too.";
  command.examples = {{"spmd infer examples/spmd-cases.json", "placements as a table"},
                      {"spmd infer examples/spmd-cases.json --json", "the same as dims_mapping"}};
  command.positionals = {
      {.name = "FILE", .help = "a file of cases; - is standard input", .least = 1, .most = 1}};
  command.run = run_infer;
  return command;
}

}  // namespace

Command spmd_command() {
  Command command;
  command.name = "spmd";
  command.summary = "distributed tensors: placements inferred from operator to operator";
  command.examples = {{"spmd infer examples/spmd-cases.json", "what operators need and leave"}};
  command.children = {infer_command()};
  return command;
}

}  // namespace pipewright::tools
