// pipewright spmd run: an operator graph trained on the ranks of its meshes, and on one.
#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "core/base/words.hpp"
#include "core/spmd/graph/graph_json.hpp"
#include "core/spmd/graph/step_calls.hpp"
#include "exec/collectives/process/job_groups.hpp"
#include "exec/spmd/graph_timeline.hpp"
#include "exec/spmd/graph_values.hpp"
#include "exec/transports/process/all_gather.hpp"
#include "planner/tensor_placement/step_prices.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/session.hpp"
#include "tools/commands/commands.hpp"
#include "tools/commands/spmd/graph_cluster.hpp"
#include "tools/commands/spmd/pipeline_flags.hpp"
#include "tools/commands/spmd/training_report.hpp"
#include "tools/output/timeline_files.hpp"
#include "tools/running/modules.hpp"
#include "tools/running/process_job.hpp"

namespace pipewright::tools {
namespace {

namespace placing = planner::tensor_placement;

constexpr const char* kNoPipeline =
    ": the graph is no pipeline; give it a \"pipeline\", or --schedule-mode";

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

/// What a process of a job has instead of threads. Who waits in a group lets letters go on.
exec::graphs::GraphProcess process_of(exec::mpi::Link& link, exec::collectives::JobGroups& groups,
                                      exec::collectives::Letters* letters) {
  exec::collectives::Look look;
  if (letters != nullptr) look = [letters] { letters->advance(); };
  return {.process = link.process(),
          .group = [&groups, look](auto ranks) { return groups.group(ranks, look); },
          .share = [&link](const std::string& own) { return exec::mpi::all_gather(link, own); },
          .post = {.post = [letters](int to, auto bytes) { letters->post(to, std::move(bytes)); },
                   .take = [letters](int from) { return letters->take(from); }},
          .clock_offset_ns = link.clock().offset_ns};
}

spmd::OperatorGraph graph_of(const Arguments& arguments) {
  const std::string file = arguments.positionals().front();
  const Json json = parse_json(read_text(file), file);
  spmd::OperatorGraph given = spmd::read_graph(JsonCursor(json, file));
  given.optimizer = optimizer_of(arguments, given);
  take_pipeline_flags(arguments, given);
  return given;
}

void require_processes(const spmd::OperatorGraph& graph, const exec::mpi::Link& link) {
  const int wanted = exec::graphs::processes_of(graph);
  if (link.processes() == wanted) return;
  throw InputError("the graph's ranks are 0 to " + std::to_string(wanted - 1) +
                   ", and the job has " + std::to_string(link.processes()) + " processes: start " +
                   std::to_string(wanted));
}

/// The steps of a training, stage by stage where the graph is a pipeline, and what they cost.
void plan_steps(const Arguments& arguments, std::size_t loss, Trained& trained) {
  const Cluster cluster = cluster_for(arguments, trained.graph);
  trained.cluster = cluster.name;
  if (!trained.graph.pipeline) {
    trained.steps = spmd::training_steps(trained.graph, loss);
    trained.expected_ns = placing::StepPrices(trained.graph, trained.steps, cluster).whole();
    return;
  }
  const spmd::PipelineStages stages = spmd::pipeline_stages(trained.graph);
  trained.steps = spmd::training_steps(trained.graph, loss, stages.order_of(trained.graph));
  trained.pipeline = graph_program(trained.graph, stages, trained.steps, cluster);
  trained.expected_ns = static_cast<double>(trained.pipeline->expected.makespan_ns);
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
      throw InputError(std::string("--order") + kNoPipeline);
    }
    session.save(*out, write_order_csv(trained.pipeline->order));
    session.wrote(*out);
  }
}

/// The last step of a pipeline, as it ran, into the files that are asked for.
void save_timeline(const Arguments& arguments, const Trained& trained, Session& session) {
  const std::vector<Flag> flags = timeline_file_flags();
  const auto asked = std::ranges::find_if(
      flags, [&](const Flag& flag) { return arguments.text(flag.name).has_value(); });
  if (asked == flags.end()) return;
  if (!trained.pipeline) throw InputError(std::string(asked->name) + kNoPipeline);
  const GraphProgram& program = *trained.pipeline;
  Subject subject;
  subject.title = program.title;
  subject.source = arguments.positionals().front();
  subject.order = program.order;
  subject.program = program.program;
  subject.costs = program.costs;
  subject.costs_text = "operators on " + trained.cluster;
  save_timeline_files(arguments, session, subject,
                      exec::graphs::timeline_of(program.program, trained.graph,
                                                program.schedule.stages, trained.divided.spans),
                      traces::TraceInfo::Kind::Measured);
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
  if (speaks) write_orders(arguments, trained, session);
  if (const auto folder = arguments.text("--load")) options.load = *folder;
  if (trained.pipeline) options.schedule = trained.pipeline->schedule;
  exec::graphs::require_trainable(trained.graph, trained.steps, options);
  if (speaks) trained.serial = trained_on_one_rank(given, loss, options);
  if (const auto folder = arguments.text("--save")) options.save = *folder;
  if (link == nullptr) {
    trained.divided = exec::graphs::train_graph(trained.graph, trained.steps, options);
  } else {
    exec::collectives::JobGroups groups(*link);
    const auto letters = trained.pipeline ? groups.letters() : nullptr;
    const exec::graphs::GraphProcess process = process_of(*link, groups, letters.get());
    trained.divided = exec::graphs::train_graph(trained.graph, trained.steps, options, &process);
  }
  if (!speaks) return kDone;
  if (options.save) session.wrote(options.save->string());
  save_timeline(arguments, trained, session);
  if (session.json()) {
    session.print_result(to_json(trained));
  } else {
    print_training(trained, session);
  }
  return agrees(trained) ? kDone : kAnswerIsNo;
}

int run_graph(const Arguments& arguments, Session& session) {
  const std::string transport = arguments.text_or("--transport", "local");
  if (transport == "local") return train_graph(arguments, session, nullptr);
  if (transport == "mpi") require_transport(transport);
  const auto job = job_for(transport);
  if (!job) {
    const int processes = exec::graphs::processes_of(graph_of(arguments));
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
  for (Flag& flag : timeline_file_flags()) command.flags.push_back(std::move(flag));
  for (Flag& flag : pipeline_flags()) command.flags.push_back(std::move(flag));
  command.flags.push_back({.group = "Output",
                           .name = "--cluster",
                           .argument = "CLUSTER",
                           .help = "whose time of a step is expected: a preset or a cluster.json; "
                                   "default dgx-a100"});
  command.run = run_graph;
  return command;
}

}  // namespace pipewright::tools
