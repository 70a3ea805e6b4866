// pipewright spmd run: an operator graph trained on the ranks of its meshes, and on one.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/base/error.hpp"
#include "core/base/units.hpp"
#include "core/base/words.hpp"
#include "core/spmd/graph/graph_json.hpp"
#include "core/spmd/graph/step_calls.hpp"
#include "core/spmd/reshard_cases.hpp"
#include "exec/collectives/process/job_groups.hpp"
#include "exec/spmd/graph_training.hpp"
#include "exec/spmd/graph_values.hpp"
#include "exec/transports/process/all_gather.hpp"
#include "planner/tensor_placement/stage_costs.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"
#include "tools/commands/spmd/graph_cluster.hpp"
#include "tools/commands/spmd/graph_program.hpp"
#include "tools/commands/spmd/pipeline_flags.hpp"
#include "tools/running/modules.hpp"
#include "tools/running/process_job.hpp"

namespace pipewright::tools {
namespace {

/// Of losses, gradients and parameters, relative: sums in another order are as far apart.
constexpr double kMostDifference = 1e-6;

std::string digits_text(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

/// Of a graph that is a pipeline.
struct Pipeline {
  GraphProgram program;
  CostTable costs;
  std::string cluster;
};

struct Trained {
  spmd::OperatorGraph graph;  // completed
  spmd::TrainingSteps steps;
  std::optional<Pipeline> pipeline;
  exec::graphs::GraphTraining divided, serial;
};

struct Comparison {
  exec::graphs::ArrayDifference losses, gradients, parameters;  // the largest of any
  double bound = kMostDifference;

  bool agrees() const {
    return std::max({losses.relative, gradients.relative, parameters.relative}) <= bound;
  }
};

std::vector<float> as_floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

void take_larger(exec::graphs::ArrayDifference& of_all, const exec::graphs::ArrayDifference& one) {
  of_all.relative = std::max(of_all.relative, one.relative);
  of_all.same_bits = of_all.same_bits && one.same_bits;
}

Comparison compared(const Trained& trained) {
  Comparison comparison;
  if (trained.pipeline) {  // roundings of a sum of so many
    comparison.bound *=
        std::sqrt(static_cast<double>(trained.pipeline->program.schedule.micro_batches));
  }
  for (std::size_t step = 0; step < trained.divided.losses.size(); ++step) {
    take_larger(comparison.losses,
                exec::graphs::difference(as_floats({trained.divided.losses[step]}),
                                         as_floats({trained.serial.losses[step]})));
  }
  for (const auto& [name, values] : trained.divided.parameters) {
    take_larger(comparison.parameters,
                exec::graphs::difference(values, trained.serial.parameters.at(name)));
    take_larger(comparison.gradients, exec::graphs::difference(trained.divided.gradients.at(name),
                                                               trained.serial.gradients.at(name)));
  }
  return comparison;
}

std::string difference_text(const exec::graphs::ArrayDifference& one) {
  return one.same_bits ? "the same bits" : "off by " + digits_text(one.relative, 2);
}

void print_losses(const Trained& trained, Session& session) {
  Table table({{"step"},
               {"loss", Table::Align::Right},
               {"on one rank", Table::Align::Right},
               {"difference"}});
  for (std::size_t step = 0; step < trained.divided.losses.size(); ++step) {
    const double loss = trained.divided.losses[step], serial = trained.serial.losses[step];
    table.add({std::to_string(step), digits_text(loss, 7), digits_text(serial, 7),
               difference_text(exec::graphs::difference(as_floats({loss}), as_floats({serial})))});
  }
  session.print(table.text(session.terminal()));
}

const spmd::GraphTensor& tensor_of(const Trained& trained, std::size_t array) {
  return trained.graph.tensors[trained.steps.arrays[array].tensor];
}

std::string layout_text(const Trained& trained, std::size_t array) {
  const spmd::TrainingArray& one = trained.steps.arrays[array];
  const spmd::NamedMesh& mesh = trained.graph.meshes[one.mesh];
  const std::string text = text_of(one.layout, mesh.mesh);
  return trained.graph.meshes.size() > 1 ? mesh.name + ": " + text : text;
}

void print_moves(const Trained& trained, Session& session) {
  Table table({{"tensor"}, {"from"}, {"to"}, {"bytes", Table::Align::Right}, {"steps"}});
  for (const spmd::TrainingStep& step : trained.steps.steps) {
    if (step.kind != spmd::TrainingStep::Kind::Move) continue;
    const std::size_t from = *step.inputs[0], to = *step.outputs[0];
    const bool is_gradient = trained.steps.arrays[to].is_gradient;
    table.add({(is_gradient ? "gradient of " : "") + tensor_of(trained, from).name,
               layout_text(trained, from), layout_text(trained, to),
               std::to_string(step.plan.bytes), spmd::text_of(step.plan.steps)});
  }
  session.print(table.text(session.terminal()));
}

constexpr std::pair<const char*, std::int64_t spmd::StepMemory::*> kMemoryRows[] = {
    {"parameters", &spmd::StepMemory::parameters},
    {"gradients", &spmd::StepMemory::gradients},
    {"states", &spmd::StepMemory::states},
    {"all", &spmd::StepMemory::all},
};

/// What layouts say is of one micro-batch.
void print_memory(const Trained& trained, Session& session) {
  const spmd::StepMemory formula = memory_of(trained.graph, trained.steps);
  Table table({{"most at once, of the fullest rank"},
               {trained.pipeline ? "of one micro-batch" : "by layouts", Table::Align::Right},
               {"held", Table::Align::Right},
               {"on one rank", Table::Align::Right}});
  const auto bytes = [](std::int64_t count) { return format_bytes(Bytes(count)); };
  for (const auto& [name, value] : kMemoryRows) {
    table.add({name, bytes(formula.*value), bytes(trained.divided.memory.*value),
               bytes(trained.serial.memory.*value)});
  }
  session.print(table.text(session.terminal()));
}

void print_training(const Trained& trained, Session& session) {
  if (trained.pipeline) {
    const Pipeline& pipeline = *trained.pipeline;
    session.print(expected_text(pipeline.program, pipeline.costs, pipeline.cluster) + "\n");
  }
  print_losses(trained, session);
  session.print("\n");
  print_moves(trained, session);
  session.print("\n");
  print_memory(trained, session);
  if (trained.divided.bytes_read > 0) {
    const auto bytes = [](std::int64_t count) { return format_bytes(Bytes(count)); };
    session.print("\nread of the saved state: " + bytes(trained.divided.bytes_read) +
                  " by the rank that needs most, " + bytes(trained.serial.bytes_read) +
                  " by one rank\n");
  }
  const Comparison comparison = compared(trained);
  session.print("\nagainst one rank: losses " + difference_text(comparison.losses) +
                "; gradients of the first step " + difference_text(comparison.gradients) +
                "; parameters in the end " + difference_text(comparison.parameters) + "\n");
}

Json to_json(const exec::graphs::ArrayDifference& one) {
  return {{"same_bits", one.same_bits}, {"relative", one.relative}};
}

Json to_json(const spmd::StepMemory& memory) {
  Json fields;
  for (const auto& [name, value] : kMemoryRows) fields[name] = memory.*value;
  return fields;
}

Json to_json(const Trained& trained) {
  const Comparison comparison = compared(trained);
  Json moves = Json::array();
  for (const spmd::TrainingStep& step : trained.steps.steps) {
    if (step.kind != spmd::TrainingStep::Kind::Move) continue;
    const std::size_t from = *step.inputs[0], to = *step.outputs[0];
    moves.push_back({{"tensor", tensor_of(trained, from).name},
                     {"gradient", trained.steps.arrays[to].is_gradient},
                     {"from", layout_text(trained, from)},
                     {"to", layout_text(trained, to)},
                     {"bytes", step.plan.bytes},
                     {"steps", spmd::text_of(step.plan.steps)}});
  }
  Json fields = {{"losses", trained.divided.losses},
                 {"serial_losses", trained.serial.losses},
                 {"moves", std::move(moves)},
                 {"bytes", bytes_of(trained.steps)},
                 {"bytes_read", trained.divided.bytes_read},
                 {"memory",
                  {{"formula", to_json(memory_of(trained.graph, trained.steps))},
                   {"held", to_json(trained.divided.memory)},
                   {"serial", to_json(trained.serial.memory)}}},
                 {"difference",
                  {{"losses", to_json(comparison.losses)},
                   {"gradients", to_json(comparison.gradients)},
                   {"parameters", to_json(comparison.parameters)}}},
                 {"agrees", comparison.agrees()}};
  if (trained.pipeline) {
    const Pipeline& pipeline = *trained.pipeline;
    fields["pipeline"] = expected_json(pipeline.program, pipeline.costs, pipeline.cluster);
  }
  return fields;
}

exec::graphs::GraphTrainingOptions options_of(const Arguments& arguments) {
  constexpr int kMostSteps = 10'000;
  constexpr std::int64_t kMostSeed = std::int64_t{1} << 53;  // as far as JSON's numbers go
  exec::graphs::GraphTrainingOptions options;
  options.steps = arguments.integer_or("--steps", 1, kMostSteps, options.steps);
  options.seed = static_cast<std::uint64_t>(arguments.integer("--seed", 0, kMostSeed).value_or(1));
  return options;
}

/// As the file says, and what flags say instead.
spmd::GraphOptimizer optimizer_of(const Arguments& arguments, const spmd::OperatorGraph& graph) {
  spmd::GraphOptimizer optimizer = graph.optimizer;
  if (const auto name = arguments.text("--optimizer")) {
    const spmd::GraphOptimizer named = spmd::optimizer_named(*name);
    optimizer.learning_rate = named.learning_rate;
    optimizer.kind = named.kind;
  }
  if (const auto text = arguments.text("--learning-rate")) {
    const auto rate = number_of_word<double>(*text);
    if (!rate || !std::isfinite(*rate) || *rate < 0) {
      throw InputError("--learning-rate: expected a number from 0, found \"" + *text + "\"");
    }
    optimizer.learning_rate = *rate;
  }
  optimizer.sharding_stage =
      arguments.integer_or("--sharding-stage", 0, 3, optimizer.sharding_stage);
  if (const auto dim = arguments.text("--sharding-dim")) optimizer.sharding_dim = dim;
  return optimizer;
}

/// What a process of a job has instead of threads.
exec::graphs::GraphProcess process_of(exec::mpi::Link& link, exec::collectives::JobGroups& groups) {
  return {.process = link.process(),
          .group = [&groups](std::span<const RankId> ranks) { return groups.group(ranks, {}); },
          .share = [&link](const std::string& own) { return exec::mpi::all_gather(link, own); }};
}

spmd::OperatorGraph graph_of(const Arguments& arguments) {
  const std::string file = arguments.positionals().front();
  const Json json = parse_json(read_text(file), file);
  spmd::OperatorGraph given = spmd::read_graph(JsonCursor(json, file));
  given.optimizer = optimizer_of(arguments, given);
  take_pipeline_flags(arguments, given);
  return given;
}

void require_no_pipeline(const spmd::OperatorGraph& graph) {
  if (!graph.pipeline) return;
  throw InputError("a graph with a \"pipeline\" is trained by threads: leave out --transport");
}

void require_processes(const spmd::OperatorGraph& graph, const exec::mpi::Link& link) {
  const int wanted = exec::graphs::processes_of(graph);
  if (link.processes() == wanted) return;
  throw InputError("the graph's ranks are 0 to " + std::to_string(wanted - 1) +
                   ", and the job has " + std::to_string(link.processes()) + " processes: start " +
                   std::to_string(wanted));
}

/// The steps of a training, stage by stage where the graph is a pipeline.
void plan_steps(const Arguments& arguments, std::size_t loss, Trained& trained) {
  if (!trained.graph.pipeline) {
    trained.steps = spmd::training_steps(trained.graph, loss);
    return;
  }
  const spmd::PipelineStages stages = spmd::pipeline_stages(trained.graph);
  trained.steps = spmd::training_steps(trained.graph, loss, stages.order_of(trained.graph));
  const Cluster cluster = cluster_for(arguments, trained.graph);
  trained.pipeline = {
      graph_program(trained.graph, stages),
      planner::tensor_placement::stage_costs(trained.graph, stages, trained.steps, cluster),
      cluster.name};
}

void write_orders(const Arguments& arguments, const Trained& trained, Session& session) {
  if (const auto out = arguments.text("--calls")) {
    if (trained.pipeline) {
      throw InputError(
          "--calls: stages with micro-batches do not all call in one order; --order "
          "has the order of each");
    }
    session.save(*out, spmd::calls_of(trained.graph, trained.steps));
    session.wrote(*out);
  }
  if (const auto out = arguments.text("--order")) {
    if (!trained.pipeline) {
      throw InputError(
          "--order: the graph is no pipeline; give it a \"pipeline\", or "
          "--schedule-mode");
    }
    session.save(*out, write_order_csv(trained.pipeline->program.order));
    session.wrote(*out);
  }
}

exec::graphs::GraphTraining trained_on_one_rank(const spmd::OperatorGraph& given, std::size_t loss,
                                                exec::graphs::GraphTrainingOptions options) {
  const spmd::OperatorGraph serial = exec::graphs::on_one_rank(given);
  if (given.pipeline) {
    options.schedule = exec::graphs::one_after_another(spmd::pipeline_stages(serial),
                                                       given.pipeline->accumulate_steps);
  }
  return exec::graphs::train_graph(serial, spmd::training_steps(serial, loss), options);
}

int train_graph(const Arguments& arguments, Session& session, exec::mpi::Link* link) {
  const spmd::OperatorGraph given = graph_of(arguments);
  if (link != nullptr) require_processes(given, *link);
  const bool speaks = link == nullptr || link->process() == 0;
  const std::size_t loss = spmd::loss_of(given, arguments.text("--loss"));
  exec::graphs::GraphTrainingOptions options = options_of(arguments);
  for (const std::string& weights : arguments.all("--weights")) {
    options.values.merge(exec::graphs::read_graph_values(weights, given));
  }
  Trained trained;
  trained.graph = spmd::completed(given).graph;
  plan_steps(arguments, loss, trained);
  if (link != nullptr) require_no_pipeline(given);
  if (speaks) write_orders(arguments, trained, session);
  if (const auto folder = arguments.text("--load")) options.load = *folder;
  if (speaks) trained.serial = trained_on_one_rank(given, loss, options);
  if (trained.pipeline) options.schedule = trained.pipeline->program.schedule;
  if (const auto folder = arguments.text("--save")) options.save = *folder;
  if (link == nullptr) {
    trained.divided = exec::graphs::train_graph(trained.graph, trained.steps, options);
  } else {
    exec::collectives::JobGroups groups(*link);
    const exec::graphs::GraphProcess process = process_of(*link, groups);
    trained.divided = exec::graphs::train_graph(trained.graph, trained.steps, options, &process);
  }
  if (!speaks) return kDone;
  if (options.save) session.wrote(options.save->string());
  if (session.json()) {
    session.print_result(to_json(trained));
  } else {
    print_training(trained, session);
  }
  return compared(trained).agrees() ? kDone : kAnswerIsNo;
}

int run_graph(const Arguments& arguments, Session& session) {
  const std::string transport = arguments.text_or("--transport", "local");
  if (transport == "local") return train_graph(arguments, session, nullptr);
  if (transport == "mpi") require_transport(transport);
  const auto job = job_for(transport);
  if (!job) {
    const spmd::OperatorGraph graph = graph_of(arguments);
    require_no_pipeline(graph);
    const int processes = exec::graphs::processes_of(graph);
    refuse_outside_job(transport, "spmd run", std::to_string(processes));
  }
  return run_in_job(*job, session, "spmd run", [&](exec::mpi::Link& link, Session& own) {
    return train_graph(arguments, own, &link);
  });
}

}  // namespace

Command spmd_run_command() {
  Command command;
  command.name = "spmd run";
  command.summary = "train an operator graph on the ranks of its meshes, and on one rank";
  command.description =
      "Reads an operator graph (pipewright.graph/1), completes it, and trains it with its "
      "optimizer, a thread or a process for each rank: forward, backward, what moves between, "
      "updates. Tensors that no operator makes are drawn from the seed, or read with --weights. "
      "The same graph is trained on one rank too. Where it is a pipeline (\"pipeline\", or flags), "
      "the micro-batches of a step go through its stages in the order of a schedule, which is "
      "checked before. The exit status is 1 if a loss, a gradient or a "
      "parameter is off by more than 1e-6 of the largest; of N micro-batches, the root of N "
      "times that.";
  command.examples = {
      {"spmd run docs/examples/data-parallel.json", "losses, and what moved in each step"},
      {"spmd run docs/examples/hybrid-parallel.json --steps 10", "eight ranks, two stages"},
      {"spmd run docs/examples/hybrid-words.json --calls calls.csv", "for check calls.csv"},
      {"spmd run docs/examples/small-gpt.json --optimizer adamw --sharding-stage 2 --save state",
       "the optimizer's states and gradients divided along dp, and saved; go on with --load state"},
      {"spmd run docs/examples/hybrid-words.json --schedule-mode 1F1B --accumulate-steps 8",
       "two stages that work on eight micro-batches"},
  };
  command.positionals = {
      {.name = "FILE", .help = "an operator graph; - is standard input", .least = 1, .most = 1}};
  command.flags = {
      {.group = "Training",
       .name = "--transport",
       .argument = "KIND",
       .help = "local: ranks are threads; mpi, tcp: each process of the job is the rank of its "
               "number; default local",
       .choices = {"local", "mpi", "tcp"},
       .checked = true},
      {.group = "Training",
       .name = "--loss",
       .argument = "TENSOR",
       .help = "what is minimised; default: the tensor of one element that nothing takes"},
      {.group = "Training", .name = "--steps", .argument = "N", .help = "default 3"},
      {.group = "Training",
       .name = "--learning-rate",
       .argument = "X",
       .help = "default: the graph's, else 0.1, of adamw 0.001"},
      {.group = "Training",
       .name = "--optimizer",
       .argument = "NAME",
       .help = "sgd, momentum or adamw; default: the graph's, else sgd"},
      {.group = "Training",
       .name = "--sharding-stage",
       .argument = "N",
       .help = "divide the optimizer's states (1), gradients too (2), parameters too (3); default: "
               "the graph's, else 0"},
      {.group = "Training",
       .name = "--sharding-dim",
       .argument = "NAME",
       .help = "the dimension of the mesh along which they are divided; default: the graph's, else "
               "dp"},
      {.group = "Training",
       .name = "--seed",
       .argument = "N",
       .help = "of parameters and data; default 1"},
      {.group = "Training",
       .name = "--weights",
       .argument = "FILE",
       .help = "values of parameters, constants and data to begin with (safetensors), instead of "
               "drawn ones",
       .repeatable = true,
       .is_file = true},
      {.group = "Training",
       .name = "--load",
       .argument = "DIR",
       .help = "go on from what --save left there, on this graph's meshes and placements",
       .is_file = true},
      {.group = "Output",
       .name = "--save",
       .argument = "DIR",
       .help = "parameters and the optimizer's states in the end, each rank's parts in a file of "
               "its own",
       .is_file = true,
       .writes = Writes::Folder},
      {.group = "Output",
       .name = "--calls",
       .argument = "FILE",
       .help = "the collectives of a step, rank by rank, as an order that check reads",
       .is_file = true,
       .writes = Writes::File},
      {.group = "Output",
       .name = "--order",
       .argument = "FILE",
       .help = "of a pipeline: what its meshes compute one after the other, for check and simulate",
       .is_file = true,
       .writes = Writes::File},
  };
  for (Flag& flag : pipeline_flags()) command.flags.push_back(std::move(flag));
  command.flags.push_back({.group = "Pipeline",
                           .name = "--cluster",
                           .argument = "CLUSTER",
                           .help =
                               "what the expected time is of: a preset or cluster.json; default "
                               "dgx-a100"});
  command.run = run_graph;
  return command;
}

}  // namespace pipewright::tools
