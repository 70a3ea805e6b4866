#include "tools/input/subject.hpp"

#include <memory>
#include <optional>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/most_devices.hpp"
#include "core/costs/action_times.hpp"
#include "core/costs/cost_text.hpp"
#include "core/order/order_json.hpp"
#include "core/order/problems.hpp"
#include "core/order/rows.hpp"
#include "core/plan/job.hpp"
#include "core/program/lower.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/plans/plan_title.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "planner/schedules/requested.hpp"
#include "sim/judgement.hpp"
#include "tools/input/action_times.hpp"
#include "tools/input/synthesis.hpp"

namespace pipewright::tools {
namespace {

bool is_of_kind(const JsonCursor& root, const std::string& kind) {
  if (!root.value().is_object()) return false;
  const auto schema = root.find("schema");
  return schema && schema->value().is_string() &&
         schema->string().rfind("pipewright." + kind + "/", 0) == 0;
}

/// The plan itself, or the one that a job's tuner_load_path names.
Plan plan_from_json(const JsonCursor& root, Session& session) {
  const std::string& file = root.file();
  if (is_of_kind(root, "job")) {
    const Job job = read_job(root);
    session.phases().begin(exec::Phase::Plan);
    if (job.tuner_load_path.empty()) {
      throw InputError(file, "/tuner_load_path",
                       "this job names no plan; run pipewright tune on it, or add "
                       "\"tuner_load_path\": \"plan.json\"");
    }
    try {
      return load_tuned_plan(job);
    } catch (const InputError& error) {
      throw InputError(file, "/tuner_load_path", error.what());
    }
  }
  session.phases().begin(exec::Phase::Plan);
  return read_plan(root);
}

/// --dp, of an order alone.
void replicate_if_asked(Subject& subject, int replicas) {
  if (replicas == 1) return;
  const Order& order = subject.order;
  if (!order.calls.empty() || !order.parts.empty() || order.fragment)
    throw InputError(
        "--dp: an order with calls or parts, or a fragment, says itself what its replicas do; "
        "leave it out");
  subject.order = planner::replicate(order, replicas);
  subject.title += " dp=" + std::to_string(replicas);
}

void use_given_costs(Subject& subject, const Arguments& arguments, CostsOf whose, int replicas) {
  GivenCosts costs =
      given_costs(arguments, subject.order.placement, whose, devices_of_rank(subject.order.mesh));
  const auto searched_with = std::exchange(subject.costs, std::move(costs.table)).actions;
  const ReplicaShape shape{replicas, subject.order.rank_count(), subject.order.micro_batches};
  if (searched_with != nullptr) {
    subject.costs.actions = searched_with;
  } else {
    use_action_times(subject.costs, subject.order, shape, arguments);
  }
  subject.memory_limit = costs.memory_limit;
  subject.costs_text = costs_text(subject.costs) + assumed_text(arguments);
}

/// Of one replica of the pipeline.
Placement placement_of_pipeline(const Plan& plan) {
  std::vector<RankId> homes;
  for (const StagePlan& stage : plan.stages) homes.push_back(stage.rank);
  return Placement::explicit_stages(std::move(homes), plan.ranks());
}

void read_plan_subject(Subject& subject, Plan plan, const Arguments& arguments) {
  if (arguments.has("--collectives")) {
    throw InputError(
        "--collectives belongs to orders and schedules; a plan has its cluster's (make the plan "
        "for a cluster with that section)");
  }
  if (arguments.has("--dp"))
    throw InputError("--dp belongs to orders and schedules; a plan has its own replicas");
  plan.policy = policy_from(arguments, plan.policy);
  subject.order = planner::order_of_plan(plan);
  subject.lowering = planner::lowering_of_plan(plan);
  subject.program = lower(subject.order, plan.policy, subject.lowering);
  subject.title = planner::title_of(plan);
  subject.costs = plan.costs;
  subject.memory_limit = use_cost_flags(subject.costs, arguments, placement_of_pipeline(plan));
  if (arguments.has("--costs"))
    use_action_times(subject.costs, planner::pipeline_order(plan), plan.shape(), arguments);
  subject.costs_text = costs_text(subject.costs);
  for (const char* flag : {"--cost", "--rank-cost"}) {
    if (const auto given = arguments.text(flag))
      subject.costs_text += std::string(" (the plan's, with ") + flag + " " + *given + ")";
  }
  subject.given = std::move(plan);
}

/// The policy where the user names none: prediction takes the papers' model, judgement the preset
/// that the schedule is about, else ("") what NCCL guarantees.
CommPolicy default_policy(Purpose purpose, std::string_view own_preset) {
  if (purpose == Purpose::Predict) return comm_policy_preset("ideal");
  return own_preset.empty() ? CommPolicy{} : comm_policy_preset(own_preset);
}

/// All that follows from the subject's order.
void read_order_subject(Subject& subject, const Arguments& arguments, const CommPolicy& policy,
                        Purpose purpose, CostsOf whose = CostsOf::Stages) {
  const bool fragment = arguments.has("--fragment") || subject.order.fragment;
  subject.problems = problems_of(subject.order, fragment);
  const int replicas = arguments.integer_or("--dp", 1, kMostDevices, 1);
  use_given_costs(subject, arguments, whose, replicas);
  const CostTable& costs = subject.costs;
  replicate_if_asked(subject, replicas);
  subject.lowering = {.fragment = fragment, .optimizer = times_updates(costs)};
  CommPolicy chosen = policy_from(arguments, policy);
  if (purpose == Purpose::Judge) chosen = judged_policy(subject.order, chosen, arguments);
  subject.program = lower(subject.order, chosen, subject.lowering);
}

void read_order_file(Subject& subject, Order order, const std::string& file,
                     const Arguments& arguments, Purpose purpose) {
  subject.order = std::move(order);
  subject.title = planner::title_of(subject.order, file);
  read_order_subject(subject, arguments, default_policy(purpose, ""), purpose);
}

void read_schedule_subject(Subject& subject, const std::string& name, const Arguments& arguments,
                           Purpose purpose, Session& session) {
  const planner::Schedule& schedule = named_schedule(name, session);
  session.phases().begin(exec::Phase::Plan);
  planner::ScheduleRequest request = schedule_request(arguments, schedule);
  add_costs(request, schedule, arguments);
  add_action_times(request, schedule, arguments);
  std::optional<planner::SynthesisResult> found;
  subject.order = make_requested(planner::resolve_schedule(schedule.name, request.parameters),
                                 request, arguments, session, &found);
  keep_action_times(subject.costs, request, subject.order);
  const CostsOf whose = costs_of(request);
  settle_placement(request, subject.order);
  subject.source = "--schedule " + std::string(schedule.name);
  subject.title = planner::title_of(schedule, request);
  if (found) {
    subject.given = *std::move(found);
  } else {
    subject.given = NamedSchedule{&schedule, std::move(request)};
  }
  session.phases().begin(exec::Phase::Parallel);
  read_order_subject(subject, arguments, default_policy(purpose, schedule.policy), purpose, whose);
}

}  // namespace

CommPolicy judged_policy(const Order& order, CommPolicy policy, const Arguments& arguments) {
  if (arguments.has("--preset")) return policy;
  const bool fragment = order.fragment || arguments.has("--fragment");
  CommPolicy judged = sim::judged_policy(order, policy, fragment);
  if (arguments.has("--device-queues")) judged.device_queues = policy.device_queues;
  if (arguments.has("--connect")) judged.connect = policy.connect;
  return judged;
}

Subject subject_of_plan(Plan plan, const std::string& source, const Arguments& arguments) {
  Subject subject;
  subject.source = source;
  read_plan_subject(subject, std::move(plan), arguments);
  return subject;
}

std::vector<std::string> lines_about(const Subject& subject) {
  return {"source: " + subject.source, "costs: " + subject.costs_text,
          "policy: " + policy_text(subject.program.policy)};
}

Subject read_subject_file(const std::string& path, const Arguments& arguments, Purpose purpose,
                          Session& session) {
  refuse_flags(arguments, schedule_flags(), "belongs to --schedule; a file brings its own sizes");
  Subject subject;
  const std::string file = path == "-" ? "standard input" : path;
  const std::string text = read_text(path);
  subject.source = file;
  if (!looks_like_json(text)) {
    read_order_file(subject, read_order_csv(text, file), file, arguments, purpose);
    if (!subject.lowering.fragment) {
      subject.problems = explained_by_row(std::move(subject.problems), subject.order, text, file);
    }
    return subject;
  }
  const Json document = parse_json(text, path);
  const JsonCursor root(document, path);
  if (!is_of_kind(root, "order")) {
    Plan plan = plan_from_json(root, session);
    session.phases().begin(exec::Phase::Parallel);
    return subject_of_plan(std::move(plan), file, arguments);
  }
  read_order_file(subject, read_order_json(root), file, arguments, purpose);
  return subject;
}

Subject read_subject(const Arguments& arguments, Purpose purpose, Session& session) {
  const auto name = arguments.text("--schedule");
  if (name && !arguments.positionals().empty()) {
    throw InputError("give a file or --schedule, not both");
  }
  if (name) {
    Subject subject;
    read_schedule_subject(subject, *name, arguments, purpose, session);
    return subject;
  }
  if (arguments.positionals().empty()) {
    throw InputError(
        "nothing to read: give a plan.json, a job.json or an order (CSV or JSON), or "
        "--schedule NAME --pp P --micro-batches M");
  }
  return read_subject_file(arguments.positionals().front(), arguments, purpose, session);
}

}  // namespace pipewright::tools
