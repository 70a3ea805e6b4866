// pipewright partition: the best split of an operator graph over accelerators and CPUs, or of a
// PipeDream profile over machines.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "core/base/comma_list.hpp"
#include "core/base/error.hpp"
#include "planner/base/number_text.hpp"
#include "planner/graph_partition/optimum.hpp"
#include "planner/graph_partition/pipedream_profile.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"

namespace pipewright::tools {
namespace {

using planner::DeviceShare;
using planner::GraphPartition;
using planner::OperatorGraph;
using planner::PipeDreamPlan;
using planner::PipeDreamProfile;

constexpr int kMostMachines = 1024, kMostIdeals = 10'000'000, kIdeals = 300'000;

class Stopwatch {
 public:
  Nanoseconds elapsed() const {
    return Nanoseconds(std::chrono::duration_cast<std::chrono::nanoseconds>(
                           std::chrono::steady_clock::now() - start_)
                           .count());
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string_view kind_of(const DeviceShare& share) {
  return share.accelerator ? "accelerator" : "cpu";
}

/// The nodes' ids as the file has them, ascending.
std::vector<int> ids_of(const OperatorGraph& graph, const DeviceShare& share) {
  std::vector<int> ids;
  for (const int node : share.nodes) ids.push_back(graph.nodes[static_cast<std::size_t>(node)].id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

double gap_of(const GraphPartition& partition) {
  const double above = partition.largest_load - partition.lower_bound;
  return above <= 0 ? 0 : above / partition.largest_load;
}

Json fields_of(const OperatorGraph& graph, const planner::GraphPartitionAnswer& answer) {
  Json fields = {{"method", answer.exact ? "exact" : "chain"},
                 {"verdict", !answer.partition ? "infeasible"
                             : answer.exact    ? "optimal"
                                               : "feasible"}};
  if (!answer.partition) return fields;
  const GraphPartition& partition = *answer.partition;
  Json devices = Json::array();
  for (const DeviceShare& share : partition.devices) {
    devices.push_back({{"kind", kind_of(share)},
                       {"load", share.load},
                       {"size", share.bytes},
                       {"nodes", ids_of(graph, share)}});
  }
  fields["largest_load"] = partition.largest_load;
  fields["lower_bound"] = answer.exact ? partition.largest_load : partition.lower_bound;
  fields["gap"] = answer.exact ? 0.0 : gap_of(partition);
  fields["devices"] = devices;
  fields["elements"] = partition.elements;
  fields["ideals"] = partition.ideals;
  fields["stages_tried"] = partition.stages_tried;
  return fields;
}

void print_devices(const OperatorGraph& graph, const GraphPartition& partition, Session& session) {
  using Align = Table::Align;
  Table table({{"device"},
               {"kind"},
               {"load", Align::Right},
               {"size", Align::Right},
               {"operators", Align::Right}});
  std::string lists;
  int number = 0;
  for (const DeviceShare& share : partition.devices) {
    const std::string name = std::to_string(number++);
    const bool fullest = share.load >= partition.largest_load;
    table.add({name, std::string(kind_of(share)), number_text(share.load), number_text(share.bytes),
               std::to_string(share.nodes.size())},
              fullest ? Ink::Bold : Ink::Plain);
    lists +=
        wrapped("device " + name + " holds " + planner::ranges_of(ids_of(graph, share), "-", " "),
                session.terminal().width, 0);
  }
  session.print(table.text(session.terminal()) + "\n" + lists + "\n");
}

void print_verdict(const planner::GraphPartitionAnswer& answer, Nanoseconds elapsed,
                   Session& session) {
  const GraphPartition& partition = *answer.partition;
  std::string text = "largest load " + number_text(partition.largest_load);
  if (answer.exact) {
    text += ", optimal: no split has a smaller one";
  } else {
    text += ", the best along some orders of the operators; none is below " +
            number_text(partition.lower_bound) + ", " + number_text(100 * gap_of(partition)) +
            " % less (the graph has too many ways to be cut in two for a proof; see --ideals)";
  }
  text += "; " + std::to_string(partition.elements) + " elements, " +
          std::to_string(partition.ideals) + " ideals, " + std::to_string(partition.stages_tried) +
          " stages tried in " + format_duration(elapsed);
  session.print(wrapped(text, session.terminal().width, 0));
}

void note_infeasible(const OperatorGraph& graph, bool exact, Session& session) {
  const double needed = std::accumulate(
      graph.nodes.begin(), graph.nodes.end(), 0.0,
      [](double sum, const planner::OperatorNode& node) { return sum + node.bytes; });
  session.note((exact ? std::string("no split fits")
                      : std::string("no split along some orders of the operators fits")) +
               ": " + std::to_string(graph.accelerators) + " accelerators of " +
               number_text(graph.accelerator_bytes) + " and " + std::to_string(graph.cpus) +
               " CPUs for operators of " + number_text(needed) +
               " in all; raise maxFPGAs, maxSizePerFPGA or maxCPUs");
}

int split_graph(const JsonCursor& document, const Arguments& arguments, Session& session) {
  for (const std::string_view flag : {"--machines", "--bandwidth", "--straight", "--model"}) {
    if (arguments.has(flag)) {
      throw InputError(std::string(flag) + " belongs to a PipeDream profile; " + document.file() +
                       " is an operator graph, which names its devices itself");
    }
  }
  const OperatorGraph graph = planner::read_operator_graph(document);
  const Stopwatch stopwatch;
  const auto answer = planner::best_graph_partition(
      graph, {.ideals = arguments.integer_or("--ideals", 1, kMostIdeals, kIdeals)});
  const Nanoseconds elapsed = stopwatch.elapsed();
  if (session.json()) {
    session.print_result({{"partition", fields_of(graph, answer)}, {"elapsed_ns", elapsed.value}});
  } else if (answer.partition) {
    print_devices(graph, *answer.partition, session);
    print_verdict(answer, elapsed, session);
  }
  if (answer.partition) return kDone;
  note_infeasible(graph, answer.exact, session);
  return kAnswerIsNo;
}

std::vector<planner::NetworkLevel> levels_of(const Arguments& arguments) {
  if (!arguments.has("--machines") || !arguments.has("--bandwidth")) {
    throw InputError(
        "a PipeDream profile needs --machines and --bandwidth, a value for each level of the "
        "network, the innermost first; such as --machines 8,4 --bandwidth 12GB/s,1.25GB/s");
  }
  const auto machines = split_at_commas(*arguments.text("--machines"));
  const auto bandwidths = split_at_commas(*arguments.text("--bandwidth"));
  if (machines.size() != bandwidths.size()) {
    throw InputError("--machines has " + std::to_string(machines.size()) +
                     " levels and --bandwidth " + std::to_string(bandwidths.size()) +
                     "; give a value for each level to both");
  }
  std::vector<planner::NetworkLevel> levels;
  for (std::size_t level = 0; level < machines.size(); ++level) {
    levels.push_back(
        {static_cast<int>(parse_integer(machines[level], "--machines", 1, kMostMachines)),
         parse_bandwidth(bandwidths[level], "--bandwidth")});
  }
  return levels;
}

JsonCursor profile_in(const JsonCursor& document, const Arguments& arguments) {
  const std::vector<std::string> models = planner::pipedream_models(document);
  const auto wanted = arguments.text("--model");
  if (models.empty()) {
    if (wanted)
      throw InputError("--model: " + document.file() + " holds one profile, without name");
    return document;
  }
  if (!wanted && models.size() == 1) return document.at(models.front());
  std::string list;
  for (const std::string& model : models) list += (list.empty() ? "" : ", ") + model;
  if (!wanted) throw InputError("which model of " + document.file() + "? --model " + list);
  if (!document.find(*wanted)) {
    throw InputError("--model: expected one of " + list + ", found \"" + *wanted + "\"");
  }
  return document.at(*wanted);
}

double seconds_of(const PipeDreamProfile& profile, int first, int end) {
  return profile.compute_until[static_cast<std::size_t>(end) - 1] -
         (first > 0 ? profile.compute_until[static_cast<std::size_t>(first) - 1] : 0);
}

Json fields_of(const PipeDreamProfile& profile, const PipeDreamPlan& plan) {
  const double single = profile.compute_until.back();
  Json fields = {{"method", "pipedream"}, {"single_s", single}};
  if (plan.stages.empty()) {
    fields["verdict"] = "infeasible";
    return fields;
  }
  Json stages = Json::array();
  for (const planner::ReplicatedStage& stage : plan.stages) {
    stages.push_back({{"states", {stage.first, stage.end}},
                      {"compute_s", seconds_of(profile, stage.first, stage.end)},
                      {"replicas", stage.replicas}});
  }
  fields["verdict"] = "optimal";
  fields["per_stage_s"] = plan.slowest_stage_s;
  fields["speedup"] = plan.slowest_stage_s > 0 ? Json(single / plan.slowest_stage_s) : Json();
  fields["stages"] = stages;
  return fields;
}

void print_stages(const PipeDreamProfile& profile, const PipeDreamPlan& plan, Nanoseconds elapsed,
                  Session& session) {
  using Align = Table::Align;
  Table table({{"stage"}, {"states"}, {"compute", Align::Right}, {"replicas", Align::Right}});
  const auto time = [](double seconds) {
    return format_duration(
        Nanoseconds(static_cast<std::int64_t>(std::llround(std::min(seconds * 1e9, 9e18)))));
  };
  int number = 0;
  for (const planner::ReplicatedStage& stage : plan.stages) {
    table.add({std::to_string(number++),
               std::to_string(stage.first) + "-" + std::to_string(stage.end - 1),
               time(seconds_of(profile, stage.first, stage.end)), std::to_string(stage.replicas)});
  }
  session.print(table.text(session.terminal()));
  session.print(wrapped("slowest stage " + time(plan.slowest_stage_s) + ", " +
                            number_text(profile.compute_until.back() / plan.slowest_stage_s) +
                            " times one machine; optimal in PipeDream's model; found in " +
                            format_duration(elapsed),
                        session.terminal().width, 0));
}

int split_profile(const JsonCursor& document, const Arguments& arguments, Session& session) {
  const PipeDreamProfile profile = planner::read_pipedream_profile(profile_in(document, arguments));
  const auto levels = levels_of(arguments);
  const Stopwatch stopwatch;
  const PipeDreamPlan plan =
      planner::pipedream_partition(profile, levels, arguments.has("--straight"));
  const Nanoseconds elapsed = stopwatch.elapsed();
  if (session.json()) {
    session.print_result({{"partition", fields_of(profile, plan)}, {"elapsed_ns", elapsed.value}});
  } else if (!plan.stages.empty()) {
    print_stages(profile, plan, elapsed, session);
  }
  if (!plan.stages.empty()) return kDone;
  session.note(
      "no split uses all machines: there are more of them than states to put on them; "
      "take fewer, or leave out --straight");
  return kAnswerIsNo;
}

int run_partition(const Arguments& arguments, Session& session) {
  const std::string file = arguments.positionals().front();
  const Json json = parse_json(read_text(file), file);
  const JsonCursor document(json, file);
  return planner::is_pipedream_profile(document) ? split_profile(document, arguments, session)
                                                 : split_graph(document, arguments, session);
}

}  // namespace

Command partition_command() {
  Command command;
  command.name = "partition";
  command.summary = "split an operator graph, or a PipeDream profile, with a proof";
  command.description =
      "An operator graph (the format of Tarnawski et al., NeurIPS 2020) is cut over its "
      "accelerators and CPUs so that the largest load is least: latencies, and the cost of each "
      "output that leaves a device or comes in. A PipeDream profile is cut into stages with "
      "replicas so that the slowest stage is fastest. Exit status 1: no split fits.";
  command.examples = {
      {"partition examples/operator-graph.json", "devices, loads, and which operators are where"},
      {"partition examples/pipedream-profile.json --machines 4,2 --bandwidth 10GB/s,1GB/s",
       "replicated stages on two machines of four GPUs"},
  };
  command.positionals = {{.name = "FILE",
                          .help = "an operator graph or a PipeDream profile; - is standard input",
                          .least = 1,
                          .most = 1}};
  command.flags = {
      {.group = "Operator graph",
       .name = "--ideals",
       .argument = "N",
       .help = "with more ways to cut the graph in two, take the best along some orders (300000)"},
      {.group = "PipeDream profile",
       .name = "--machines",
       .argument = "N,...",
       .help = "of each level of the network, the innermost first"},
      {.group = "PipeDream profile",
       .name = "--bandwidth",
       .argument = "BW,...",
       .help = "of each level, such as 10GB/s"},
      {.group = "PipeDream profile", .name = "--straight", .help = "a pipeline without replicas"},
      {.group = "PipeDream profile",
       .name = "--model",
       .argument = "NAME",
       .help = "where the file holds several"},
  };
  command.run = run_partition;
  return command;
}

}  // namespace pipewright::tools
