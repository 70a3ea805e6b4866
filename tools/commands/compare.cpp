// pipewright compare: several schedules under one rule, two timelines, or two plans.
#include "tools/commands/compare.hpp"

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"
#include "core/costs/cost_text.hpp"
#include "core/program/lower.hpp"
#include "planner/memory/weight_copies.hpp"
#include "planner/plans/difference.hpp"
#include "planner/synthesis/auto_schedule.hpp"
#include "sim/engine.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/figures.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"
#include "tools/input/fail_if.hpp"
#include "tools/input/memory_limit.hpp"
#include "tools/input/subject.hpp"
#include "tools/input/synthesis.hpp"

namespace pipewright::tools {
namespace {

struct ComparisonRow {
  std::string name;
  int chunks = 1;
  Verdict verdict = Verdict::Ok;
  Figures figures;      // only if the verdict is Ok
  std::string refusal;  // why there are no figures, if the size is not possible
  bool over_memory = false;
  int peak_activations = 0;
  std::int64_t peak_bytes = 0;
  double weight_copies = 1;
  double stage_share = 1;  // of a stage, in p-ths of the model
  bool rough = false;      // cut into stages too small for whole ns and bytes
};

ComparisonRow simulate_schedule(const planner::Schedule& schedule, const Arguments& arguments,
                                Session& session) {
  planner::ScheduleRequest request = schedule_request(arguments, schedule, CostsOf::Ranks);
  // One --vpp for all: a schedule that knows one chunk only keeps to it.
  if (schedule.default_chunks == 1 && !schedule.traits.searched) request.chunks = 1;
  // A parameter is for those schedules that have it.
  std::erase_if(request.parameters, [&](const auto& parameter) {
    const auto& known = schedule.parameters;
    return std::find(known.begin(), known.end(), parameter.first) == known.end();
  });
  ComparisonRow row{.name = std::string(schedule.name), .chunks = request.chunks};
  if (const auto refused = planner::refusal_of(schedule, request)) {
    row.refusal = *refused;
    return row;
  }
  // The same model for all: what the ranks hold of it is cut into the schedule's stages.
  GivenCosts costs =
      given_costs(arguments, planner::placement_of(schedule, request), CostsOf::Ranks);
  request.costs = costs.table;
  request.memory_limit = costs.memory_limit;
  const Order order = make_requested(schedule, request, arguments, session);
  if (planner::chooses_placement(request)) {
    settle_placement(request, order);
    row.chunks = request.chunks;
    costs = given_costs(arguments, order.placement, CostsOf::Ranks);
    request.costs = costs.table;
  }
  row.stage_share = static_cast<double>(request.ranks) / order.stages();
  row.rough =
      cut_is_rough(given_costs(arguments, Placement::loop(request.ranks, 1), CostsOf::Ranks).table,
                   order.stages());
  row.weight_copies = planner::weight_copies(order);
  const auto& stages = request.costs.stages;
  const bool update = std::any_of(stages.begin(), stages.end(),
                                  [](const StageCosts& each) { return each.opt.value > 0; });
  const Program program =
      lower(order, policy_from(arguments, comm_policy_preset("ideal")), {.optimizer = update});
  const sim::Result result = sim::simulate(program, request.costs);
  if (!result.finished) {
    row.verdict = sim::check(program, request.costs).verdict;
    return row;
  }
  row.figures = figures_of(program, result.timeline, request.costs);
  for (const RankFigures& rank : row.figures.ranks) {
    row.peak_activations = std::max(row.peak_activations, rank.peak_activations);
    row.peak_bytes = std::max(row.peak_bytes, rank.peak_bytes);
  }
  row.over_memory = !over_memory(row.figures.ranks, costs.memory_limit).empty();
  return row;
}

/// The schedules named; of "all", those that are possible at this size and are made for any
/// communication.
std::vector<ComparisonRow> simulate_schedules(const Arguments& arguments, Session& session) {
  const auto& names = arguments.positionals();
  std::vector<ComparisonRow> rows;
  if (names == std::vector<std::string>{"all"}) {
    for (const planner::Schedule& schedule : planner::schedules()) {
      if (schedule.policy.empty()) rows.push_back(simulate_schedule(schedule, arguments, session));
    }
    std::erase_if(rows, [](const ComparisonRow& row) { return !row.refusal.empty(); });
    return rows;
  }
  for (const auto& name : names) {
    rows.push_back(simulate_schedule(named_schedule(name, session), arguments, session));
    if (!rows.back().refusal.empty()) throw InputError(rows.back().refusal);
  }
  return rows;
}

double slower_than(const ComparisonRow& row, const ComparisonRow& first) {
  if (first.figures.makespan_ns == 0) return 0;
  return static_cast<double>(row.figures.makespan_ns) /
             static_cast<double>(first.figures.makespan_ns) -
         1;
}

/// "2", "2.5".
std::string tenths_text(double value) {
  const auto tenths = std::llround(value * 10);
  return std::to_string(tenths / 10) + (tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10));
}

std::string ending(const ComparisonRow& row) {
  if (row.verdict != Verdict::Ok) return std::string(to_string(row.verdict));
  return row.over_memory ? "over memory" : "ok";
}

std::string rank_costs_text(const CostTable& by_rank) {
  return same_for_all(by_rank) ? costs_text(by_rank) : "its own for each rank";
}

void print_rows(const std::vector<ComparisonRow>& rows, const Arguments& arguments,
                Session& session) {
  using Align = Table::Align;
  const bool memory = arguments.has("--mem") || arguments.has("--rank-mem");
  std::vector<Table::Column> columns = {{"schedule"},
                                        {"vpp", Align::Right},
                                        {"step", Align::Right},
                                        {"to 1st", Align::Right},
                                        {"bubble", Align::Right},
                                        {"live", Align::Right},
                                        {"weights", Align::Right}};
  if (memory) columns.push_back({"memory", Align::Right});
  columns.push_back({"verdict"});
  Table table(columns);
  for (const ComparisonRow& row : rows) {
    std::vector<std::string> cells = {row.name, std::to_string(row.chunks)};
    if (row.verdict == Verdict::Ok) {
      cells.push_back(format_duration(Nanoseconds(row.figures.makespan_ns)));
      cells.push_back(signed_percent_text(slower_than(row, rows.front())));
      cells.push_back(percent_text(row.figures.bubble_ratio));
      cells.push_back(tenths_text(row.peak_activations * row.stage_share));
      cells.push_back(tenths_text(row.weight_copies) + "x");
      if (memory) cells.push_back(format_bytes(Bytes(row.peak_bytes)));
    }
    cells.resize(columns.size() - 1);
    cells.push_back(ending(row));
    table.add(cells, ending(row) == "ok" ? Ink::Plain : Ink::Red);
  }
  const auto ranks = static_cast<int>(*arguments.integer("--pp", 1, 65535));
  const GivenCosts costs = given_costs(arguments, Placement::loop(ranks, 1), CostsOf::Ranks);
  const bool alias = arguments.has("--cost") || arguments.has("--mem");
  session.print(wrapped(
      "p=" + arguments.text_or("--pp", "") + " m=" + arguments.text_or("--micro-batches", "") +
          ", a rank's micro-batch: " + rank_costs_text(costs.table) + assumed_text(arguments) +
          (alias ? " (--cost and --mem are --rank-cost and --rank-mem here)" : ""),
      session.terminal().width, 0));
  session.print(
      wrapped("policy " + policy_text(policy_from(arguments, comm_policy_preset("ideal"))),
              session.terminal().width, 0));
  session.print(table.text(session.terminal()));
  session.print(
      wrapped("live: activations of micro-batches on the fullest rank, each of a p-th of "
              "the model; weights: copies of the model's on all ranks",
              session.terminal().width, 0));
}

Json rows_fields(const std::vector<ComparisonRow>& rows) {
  Json list = Json::array();
  for (const ComparisonRow& row : rows) {
    Json fields = {{"schedule", row.name},
                   {"vpp", row.chunks},
                   {"verdict", std::string(to_string(row.verdict))}};
    if (row.verdict == Verdict::Ok) {
      fields.update(figures_fields(row.figures));
      fields["over_memory"] = row.over_memory;
      fields["weight_copies"] = row.weight_copies;
    }
    list.push_back(fields);
  }
  return {{"schedules", list}};
}

int compare_schedules(const Arguments& arguments, Session& session) {
  const auto condition = fail_condition(arguments, {"step", "bubble"});
  const std::vector<ComparisonRow> rows = simulate_schedules(arguments, session);
  if (session.json()) {
    session.print_result(rows_fields(rows));
  } else {
    print_rows(rows, arguments, session);
    if (std::any_of(rows.begin(), rows.end(), [](const ComparisonRow& row) { return row.rough; })) {
      session.note(
          "cut into several stages a rank, costs this small are rounded up to whole ns "
          "and bytes; larger numbers, such as F=1us and F=1KiB, say more exactly");
    }
  }
  bool bad = false;
  for (const ComparisonRow& row : rows) {
    bad |= row.verdict != Verdict::Ok || row.over_memory;
    if (row.verdict != Verdict::Ok) continue;
    if (!fails(condition,
               {{"step", slower_than(row, rows.front())}, {"bubble", row.figures.bubble_ratio}})) {
      continue;
    }
    bad = true;
    session.note(row.name + " fails " + condition->text);
  }
  return bad ? kAnswerIsNo : kDone;
}

bool names_trace(const std::string& text) {
  return text.ends_with(".json") || text.ends_with(".gz") || text == "-" ||
         text.find('/') != text.npos;
}

constexpr std::size_t kLookedAt = 1 << 16;

/// Both files, if they are plans.
std::optional<std::pair<Plan, Plan>> two_plans(const std::vector<std::string>& names) {
  if (names.size() != 2) return std::nullopt;
  const auto is_json = [](const std::string& name) { return name.ends_with(".json"); };
  if (!std::all_of(names.begin(), names.end(), is_json)) return std::nullopt;
  for (const std::string& name : names) {
    // A trace may be large: its beginning is enough to see that it is no plan.
    if (read_text(name).substr(0, kLookedAt).find("\"pipewright.plan/") == std::string::npos)
      return std::nullopt;
  }
  return std::pair(load_plan(names[0]), load_plan(names[1]));
}

int compare_plans(const Plan& first, const Plan& second, const Arguments& arguments,
                  Session& session) {
  for (const auto& flags : {schedule_flags(), cost_flags(), policy_flags()})
    refuse_flags(arguments, flags, "belongs to schedules; two plans bring their own");
  for (const char* flag : {"--fit", "--out", "--fail-if", "--html"}) {
    if (arguments.has(flag))
      throw InputError(std::string(flag) +
                       " belongs to traces and schedules; two plans are "
                       "compared in words");
  }
  const std::vector<std::string> differences = planner::plan_differences(first, second);
  if (session.json()) {
    session.print_result({{"step_ns", {first.predicted.step.value, second.predicted.step.value}},
                          {"differences", differences}});
    return kDone;
  }
  for (const std::string& text : differences)
    session.print(wrapped("- " + text, session.terminal().width, 0));
  if (differences.empty()) session.print("the two plans are alike\n");
  return kDone;
}

int run_compare(const Arguments& arguments, Session& session) {
  const auto& names = arguments.positionals();
  if (const auto plans = two_plans(names))
    return compare_plans(plans->first, plans->second, arguments, session);
  const auto traces = std::count_if(names.begin(), names.end(), names_trace);
  if (traces == 0 && (arguments.has("--fit") || arguments.has("--out"))) {
    throw InputError("--fit and --out belong to two traces, a prediction and a measurement");
  }
  if (traces == 0 && arguments.has("--html"))
    throw InputError("--html belongs to two traces, whose timelines it shows");
  if (traces == 0) return compare_schedules(arguments, session);
  if (traces != 2 || names.size() != 2) {
    throw InputError("compare takes two traces, or names of schedules; here are " +
                     std::to_string(traces) + " traces among " + std::to_string(names.size()) +
                     " arguments");
  }
  return compare_traces(names[0], names[1], arguments, session);
}

}  // namespace

Command compare_command() {
  Command command;
  command.name = "compare";
  command.summary = "compare schedules under one rule, two timelines op by op, or two plans";
  command.description =
      "Schedules are simulated under the preset ideal unless a policy is named. --rank-cost and "
      "--rank-mem say what one micro-batch costs a rank (or each of them: F=1ms:2ms:…), and --cost "
      "and --mem mean the same here; a schedule with more or fewer stages cuts the same model "
      "anew, so that all do the same work. The name all stands "
      "for every schedule that is possible at this size. Of two traces the first is taken as the "
      "prediction; what it misses is fitted: a factor for each kind of action, an overhead of "
      "every "
      "action, and what ranks that compute at the same time take from each other. Exit status 1: "
      "one of them gets stuck, is over memory, or fails --fail-if.";
  command.examples = {
      {"compare gpipe 1f1b zb-h1 -p 4 -m 8 --cost F=2ms,I=2ms,W=1ms",
       "who has the smallest bubble, and at which memory?"},
      {"compare all -p 8 -m 32 --mem F=1GiB", "every schedule that is possible there"},
      {"compare examples/sim.trace.json examples/real.trace.json --fail-if \"step>10%\"",
       "does the machine agree with the prediction?"},
      {"compare examples/sim.trace.json examples/real.trace.json --fit examples/profile.json "
       "-o fitted.json",
       "and the costs with which it would"},
      {"compare examples/sim.trace.json examples/real.trace.json --html page.html",
       "one timeline below the other, action by action"},
      {"compare examples/plan.json examples/plan-4-ranks.json",
       "what is different about the new plan, in words"},
  };
  command.positionals = {{.name = "WHAT",
                          .help = "names of schedules, two trace files, or two plans",
                          .least = 1,
                          .most = kAnyNumber}};
  for (const auto& schedule : planner::schedules()) {
    command.positionals.front().choices.emplace_back(schedule.name);
  }
  command.positionals.front().choices.emplace_back("all");
  for (const auto& flags : {schedule_flags(), cost_flags(), policy_flags()}) {
    command.flags.insert(command.flags.end(), flags.begin(), flags.end());
  }
  command.flags.push_back({.group = "Fit",
                           .name = "--fit",
                           .argument = "PROFILE",
                           .help = "of two traces: correct the costs of this profile by what the "
                                   "prediction misses",
                           .is_file = true});
  command.flags.push_back({.group = "Fit",
                           .name = "--out",
                           .argument = "FILE",
                           .help = "where the corrected profile goes",
                           .short_name = 'o',
                           .is_file = true,
                           .writes = Writes::File});
  command.flags.push_back({.group = "Output",
                           .name = "--html",
                           .argument = "FILE",
                           .help = "of two traces: write an interactive page with both timelines "
                                   "and the difference of each action",
                           .is_file = true,
                           .writes = Writes::File});
  command.flags.push_back(
      fail_if_flag("exit with 1 if a metric is above its limit; schedules: step (to the first "
                   "one), bubble; traces: step, action (mean difference), bubble (in points)"));
  command.run = run_compare;
  return command;
}

}  // namespace pipewright::tools
