// pipewright plan: an order of one's own, a model and a cluster become a plan.
#include <variant>

#include "core/base/error.hpp"
#include "core/base/most_devices.hpp"
#include "core/order/order_json.hpp"
#include "core/order/problems.hpp"
#include "core/order/rows.hpp"
#include "core/plan/job.hpp"
#include "core/program/verdict.hpp"
#include "planner/configurations/costing.hpp"
#include "planner/plans/plan_title.hpp"
#include "planner/search/plan_of_order.hpp"
#include "planner/search/search_json.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"
#include "tools/input/named_cluster.hpp"
#include "tools/input/subject.hpp"
#include "tools/output/verdict.hpp"
#include "tools/running/tuning.hpp"

namespace pipewright::tools {
namespace {

constexpr int kMostLayersOfStage = 1 << 20;

Order read_whole_order(const std::string& path) {
  const std::string file = path == "-" ? "standard input" : path;
  const std::string text = read_text(path);
  Order order = read_order(text, file);
  const std::vector<std::string> problems =
      explained_by_row(problems_of(order, order.fragment), order, text, file);
  if (problems.empty()) return order;
  throw InputError(file + ": " + problems.front() +
                   (problems.size() > 1 ? "; pipewright check " + path + " says the rest" : ""));
}

planner::OrderSetup setup_of(const Arguments& arguments) {
  planner::OrderSetup setup;
  setup.configuration = arguments.text_or("--configuration", "");
  for (const std::string& word : arguments.words("--layers"))
    setup.layers.push_back(
        static_cast<int>(parse_integer(word, "--layers", 1, kMostLayersOfStage)));
  return setup;
}

/// A job.json, or one of --model and --cluster, whose batch is what the order makes.
Job job_to_plan(const Arguments& arguments, const Order& order, const planner::OrderSetup& setup) {
  const auto model = arguments.text("--model");
  const auto cluster = arguments.text("--cluster");
  if (!arguments.positionals().empty()) {
    if (model || cluster || arguments.has("--devices"))
      throw InputError("a job names its model and cluster; leave out " +
                       std::string(model     ? "--model"
                                   : cluster ? "--cluster"
                                             : "--devices"));
    return load_job(arguments.positionals().front());
  }
  if (!model || !cluster)
    throw InputError("give a job.json, or --model and --cluster: a preset or a file each");
  const Json document = {{"schema", "pipewright.job/1"},
                         {"model", *model},
                         {"cluster", *cluster},
                         {"global_batch", 1}};
  Job job = read_job(JsonCursor(document, "--model and --cluster"));
  if (const auto devices = arguments.integer("--devices", 1, kMostDevices))
    job.cluster = named_cluster(*cluster, static_cast<int>(*devices));
  job.global_batch = planner::global_batch_of(order, job, setup);
  return job;
}

int say_stuck(const planner::StuckOrder& stuck, Session& session) {
  if (session.json()) {
    session.print_result(verdict_fields(stuck.program, stuck.report, {}));
  } else {
    session.print(verdict_text(stuck.program, stuck.report, {}, session.terminal()));
  }
  session.note("there is no plan of an order that does not end");
  return kAnswerIsNo;
}

void print_plan(const Plan& plan, const planner::Costing& costing, Session& session) {
  const int width = session.terminal().width;
  session.print(wrapped(planner::title_of(plan), width, 0));
  session.print(wrapped("Costs: " + costing.why, width, 0));
  for (const std::string& reason : plan.tuner.reasons) session.print(wrapped(reason, width, 2));
  for (const auto& [device, executable] : plan.executable) {
    if (executable.answer != Executable::Answer::Yes)
      session.print(wrapped("run --device " + device + ": " + to_text(executable), width, 0));
  }
}

int make_plan(const Arguments& arguments, Session& session) {
  const auto path = arguments.text("--order");
  if (!path) throw InputError("missing --order: a CSV in PyTorch's form, or an order.json");
  const Order order = read_whole_order(*path);
  const planner::OrderSetup setup = setup_of(arguments);
  Job job = job_to_plan(arguments, order, setup);
  for (const std::string& text : job.notes) session.note(text);
  for (const std::string& text : job.cluster.assumed)
    session.note("assumed of the cluster: " + text);
  if (names_policy(arguments))
    job.strategy.policy = policy_from(arguments, job.strategy.policy.value_or(CommPolicy{}));
  const auto profile = profile_for(job, arguments.text("--profile"));
  const planner::Costing costing = planner::settle_costing(job, profile ? &*profile : nullptr);
  const auto made = planner::plan_of_order(job, profile ? &*profile : nullptr, 0, order, setup);
  if (const auto* stuck = std::get_if<planner::StuckOrder>(&made))
    return say_stuck(*stuck, session);

  const auto& [plan, over_memory] = std::get<planner::PlanOfOrder>(made);
  const auto out = arguments.text("--out");
  if (session.json()) {
    session.print_result({{"plan", to_json(plan)},
                          {"costing", planner::costing_fields(costing)},
                          {"over_memory", over_memory}});
  } else {
    print_plan(plan, costing, session);
  }
  if (out) {
    session.save(*out, to_text(to_json(plan)));
    session.wrote(*out, "; next: pipewright simulate " + *out);
  } else if (!session.json()) {
    session.note("next: the same with -o plan.json   (writes the plan)");
  }
  for (const std::string& sentence : over_memory) session.note("over memory: " + sentence);
  return over_memory.empty() ? kDone : kAnswerIsNo;
}

}  // namespace

Command plan_command() {
  Command command;
  command.name = "plan";
  command.summary = "make a plan of an order of your own";
  command.description =
      "The order says which rank computes which stages when, and how many micro-batches a step "
      "has; layers are cut into its stages, costs come from the profile where there is one, else "
      "from the estimate or operation counts, as tune has them. Exit status 1: the order does not "
      "end, or a rank would hold more than it has (the plan is written all the same).";
  command.examples = {
      {"plan --model gpt-tiny --cluster local-cpu --order examples/order.csv -o plan.json",
       "a plan that run trains with"},
      {"plan --model llama3-8b --cluster dgx-h100 --devices 16 --order examples/order.csv "
       "--configuration tp=4,micro_batch_size=2",
       "what an order does not say"},
      {"plan examples/job.json --order examples/order.csv --configuration micro_batch_size=4 "
       "--json",
       "with the job's model, cluster and training; the batch is the job's too"},
  };
  command.positionals = {{.name = "JOB",
                          .help = "a job.json, in place of --model and --cluster",
                          .least = 0,
                          .most = 1}};
  command.flags = {
      {.group = "What to plan",
       .name = "--order",
       .argument = "FILE",
       .help = "a CSV in PyTorch's form, or an order.json; - is standard input",
       .is_file = true},
      {.group = "What to plan",
       .name = "--model",
       .argument = "NAME",
       .help = "a preset, a model.json or an architecture.json"},
      {.group = "What to plan",
       .name = "--cluster",
       .argument = "NAME",
       .help = "a preset, or a cluster.json"},
      {.group = "What to plan", .name = "--devices", .argument = "N", .help = "of the preset (8)"},
      {.group = "What to plan",
       .name = "--configuration",
       .argument = "CONFIG",
       .help = "tp=4,dp=2,micro_batch_size=2,recompute=full: what the order does not say, as tune "
               "--explain has it"},
      {.group = "What to plan",
       .name = "--layers",
       .argument = "N,...",
       .help = "layers of each stage (as even by cost as they can be)",
       .repeatable = true},
      {.group = "What to plan",
       .name = "--profile",
       .argument = "FILE",
       .help = "measured costs, instead of the job's own profile",
       .is_file = true},
      {.group = "Output",
       .name = "--out",
       .argument = "FILE",
       .help = "where the plan goes",
       .short_name = 'o',
       .is_file = true,
       .writes = Writes::File}};
  for (auto& flag : policy_flags()) command.flags.push_back(std::move(flag));
  command.run = make_plan;
  return command;
}

}  // namespace pipewright::tools
