// pipewright spmd place: how a graph's operators and tensors are divided so that a step takes
// least.
#include <algorithm>

#include "core/base/error.hpp"
#include "core/order/element_type.hpp"
#include "core/spmd/graph/explanation.hpp"
#include "core/spmd/graph/graph_json.hpp"
#include "core/spmd/reshard_cases.hpp"
#include "planner/tensor_placement/placement_json.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/figures.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"
#include "tools/commands/spmd/graph_cluster.hpp"
#include "tools/commands/spmd/mesh_flag.hpp"

namespace pipewright::tools {
namespace {

namespace placing = planner::tensor_placement;
using Align = Table::Align;

std::string bytes_text(std::int64_t bytes) { return format_bytes(Bytes(bytes)); }

std::string layouts_text(const std::vector<std::optional<spmd::Layout>>& layouts,
                         const spmd::ProcessMesh& mesh) {
  std::string text;
  for (const auto& layout : layouts) {
    if (layout) text += (text.empty() ? "" : ", ") + text_of(*layout, mesh);
  }
  return text;
}

void print_operators(const placing::GraphPlacement& placement, Session& session) {
  Table table({{"operator"},
               {"rule"},
               {"takes"},
               {"makes"},
               {"forward", Align::Right},
               {"backward", Align::Right},
               {"messages", Align::Right},
               {"moved", Align::Right},
               {"kept", Align::Right}});
  for (std::size_t at = 0; at < placement.operators.size(); ++at) {
    const spmd::GraphOperator& one = placement.completion.graph.operators[at];
    const spmd::ProcessMesh& mesh = placement.completion.graph.meshes[*one.annotation.mesh].mesh;
    const placing::PlacedOperator& cost = placement.operators[at];
    table.add({one.name, one.rule, layouts_text(one.annotation.inputs, mesh),
               layouts_text(one.annotation.outputs, mesh), time_text(cost.ns.forward),
               time_text(cost.ns.backward),
               time_text(cost.communication_ns + cost.ns.own_collectives),
               bytes_text(cost.communication_bytes), bytes_text(cost.bytes)});
  }
  session.print(table.text(session.terminal()));
}

void print_reshards(const placing::GraphPlacement& placement, std::optional<std::size_t> of_tensor,
                    Session& session) {
  Table table({{"tensor"},
               {"between"},
               {"from"},
               {"to"},
               {"bytes", Align::Right},
               {"time", Align::Right},
               {"steps"}});
  const spmd::OperatorGraph& graph = placement.completion.graph;
  const auto add = [&](std::size_t tensor, const char* what,
                       const std::vector<std::size_t>& operators, const spmd::Layout& from,
                       const spmd::Layout& to, const spmd::ReshardPlan& plan, double ns) {
    if (of_tensor ? tensor != *of_tensor : ns == 0) return;
    const spmd::ProcessMesh& mesh = graph.meshes[*graph.tensors[tensor].annotation.mesh].mesh;
    std::string between = what;
    for (const std::size_t at : operators) between += " " + graph.operators[at].name;
    table.add({graph.tensors[tensor].name, between, text_of(from, mesh), text_of(to, mesh),
               std::to_string(plan.bytes), time_text(ns), spmd::text_of(plan.steps)});
  };
  for (std::size_t at = 0; at < placement.completion.reshards.size(); ++at) {
    const spmd::GraphReshard& one = placement.completion.reshards[at];
    add(one.tensor, one.is_made ? "made by" : "taken by", one.operators, one.from, one.to, one.plan,
        placement.reshard_ns[at]);
  }
  for (const placing::GradientReshard& one : placement.gradients) {
    add(one.tensor, one.is_made ? "gradient to" : "gradient from", one.operators, one.from, one.to,
        one.plan, one.ns);
  }
  session.print(table.text(session.terminal()));
}

std::string verdict_text(const placing::GraphPlacement& placement) {
  if (placement.gap() == 0) return "no placement takes less";
  return "none takes less than " + time_text(placement.found.bound_ns) + ", a gap of " +
         percent_text(placement.gap());
}

void print_placement(const placing::GraphPlacement& placement, Session& session) {
  const auto line = [&](const std::string& text) {
    session.print(wrapped(text, session.terminal().width, 0));
  };
  if (!placement.is_found()) {
    line("no placement found in " + bytes_text(placement.limit_bytes) +
         " for each device: one needs at least " +
         bytes_text(static_cast<std::int64_t>(placement.found.least_bytes)));
    return;
  }
  print_operators(placement, session);
  session.print("\n");
  print_reshards(placement, std::nullopt, session);
  session.print("\n");
  line("a step takes " + time_text(placement.found.totals.ns) + ": " + verdict_text(placement) +
       "; " + bytes_text(static_cast<std::int64_t>(placement.found.totals.bytes)) + " of " +
       bytes_text(placement.limit_bytes) + " for each device");
}

void print_explanation(const placing::GraphPlacement& placement,
                       const std::vector<placing::OtherHome>& homes, const std::string& tensor,
                       Session& session) {
  const spmd::OperatorGraph& graph = placement.completion.graph;
  const auto found = std::find_if(graph.tensors.begin(), graph.tensors.end(),
                                  [&](const auto& one) { return one.name == tensor; });
  const spmd::ProcessMesh& mesh = graph.meshes[*found->annotation.mesh].mesh;
  session.print(wrapped("\"" + tensor + "\", " + shape_text(found->shape) + ", lies as " +
                            text_of(*found->annotation.layout, mesh) + "; a step takes " +
                            time_text(placement.found.totals.ns),
                        session.terminal().width, 0));
  Table table({{"layout"}, {"a step with it takes at least", Align::Right}});
  for (const placing::OtherHome& home : homes) {
    table.add({text_of(home.layout, mesh), time_text(home.least_ns)});
  }
  session.print(table.text(session.terminal()));
  print_reshards(placement, static_cast<std::size_t>(found - graph.tensors.begin()), session);
}

int run_place(const Arguments& arguments, Session& session) {
  const std::string file = arguments.positionals().front();
  const Json json = parse_json(read_text(file), file);
  spmd::OperatorGraph graph = spmd::read_graph(JsonCursor(json, file));
  if (const auto mesh = arguments.text("--mesh")) {
    graph = placing::on_mesh(std::move(graph), mesh_shape(*mesh));
  }
  const Cluster cluster = cluster_for(arguments, graph);
  const auto memory = arguments.text("--memory");
  const Bytes limit = memory ? parse_bytes(*memory, "--memory") : cluster.device.memory;
  if (limit.value < 1) throw InputError("--memory: expected 1 byte or more");
  const placing::GraphPlacement placement = placing::placed(graph, cluster, limit.value);
  const auto wanted = arguments.text("--explain");
  std::vector<placing::OtherHome> homes;
  if (wanted && placement.is_found()) {
    homes = placing::homes_of(graph, cluster, placement, *wanted);
  }
  if (const auto out = arguments.text("--out"); out && placement.is_found()) {
    session.save(*out, to_text(to_json(placement.completion)));
    session.wrote(*out);
  }
  if (session.json()) {
    Json fields = {{"placement", placing::to_json(placement)}};
    if (placement.is_found()) fields["graph"] = to_json(placement.completion);
    if (wanted && placement.is_found()) {
      fields["explanation"] = placing::to_json(homes, placement);
    }
    session.print_result(fields);
  } else if (wanted && placement.is_found()) {
    print_explanation(placement, homes, *wanted, session);
  } else {
    print_placement(placement, session);
  }
  return placement.is_found() ? kDone : kAnswerIsNo;
}

}  // namespace

Command spmd_place_command() {
  Command command;
  command.name = "spmd place";
  command.summary = "how to divide an operator graph so that a step takes least time";
  command.description =
      "Reads an operator graph (pipewright.graph/1) and finds how each operator computes and each "
      "tensor lies: forward, backward and all messages between take least time on the cluster, "
      "within the memory of each device. No annotation is changed. Where the search is not exact, "
      "the gap to a proven bound is said. The exit status is 1 if no placement was found that fits "
      "into memory.";
  command.examples = {
      {"spmd place examples/graph-mlp.json", "operators, messages, time and memory"},
      {"spmd place examples/graph-mlp.json --explain w_up", "what other layouts would cost"},
  };
  command.positionals = {
      {.name = "FILE", .help = "an operator graph; - is standard input", .least = 1, .most = 1}};
  command.flags = {
      {.group = "Machine",
       .name = "--mesh",
       .argument = "SHAPE",
       .help = "ranks from 0 on in this shape, such as 8 or 2x4, in place of the graph's mesh"},
      {.group = "Machine",
       .name = "--cluster",
       .argument = "NAME",
       .help = "a preset or a cluster.json, rank r on device r; default dgx-a100",
       .is_file = true},
      {.group = "Machine",
       .name = "--memory",
       .argument = "BYTES",
       .help = "what each device may hold, such as 2GiB; default: the cluster's"},
      {.group = "Output",
       .name = "--explain",
       .argument = "TENSOR",
       .help = "what a step would take at least if this tensor lay otherwise, and its messages"},
      {.group = "Output",
       .name = "--out",
       .argument = "FILE",
       .help = "the graph with everything annotated, as a file that can be read again",
       .short_name = 'o',
       .is_file = true,
       .writes = Writes::File},
  };
  command.run = run_place;
  return command;
}

}  // namespace pipewright::tools
