// pipewright tune: from a job file to a plan.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "core/base/error.hpp"
#include "core/plan/job.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/profile.hpp"
#include "exec/transports/process/all_gather.hpp"
#include "planner/configurations/costing.hpp"
#include "planner/export/stock_verdicts.hpp"
#include "planner/plans/plan_title.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "planner/search/explanation.hpp"
#include "planner/search/job_costs.hpp"
#include "planner/search/measured_fit.hpp"
#include "planner/search/plan_of_candidate.hpp"
#include "planner/search/search.hpp"
#include "planner/search/search_json.hpp"
#include "planner/synthesis/auto_schedule.hpp"
#include "planner/synthesis/plan_synthesis.hpp"
#include "sim/engine.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/figures.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"
#include "tools/commands/tune_measured.hpp"
#include "tools/input/subject.hpp"
#include "tools/input/synthesis.hpp"
#include "tools/output/measured_text.hpp"
#include "tools/output/timeline_report.hpp"
#include "tools/running/drawn_rows.hpp"
#include "tools/running/modules.hpp"
#include "tools/running/process_job.hpp"
#include "tools/running/search_journal.hpp"
#include "tools/running/tuning.hpp"

namespace pipewright::tools {
namespace {

Json explanation_fields(const planner::Explanation& explanation) {
  return {
      {"possible", explanation.is_possible},
      {"why", explanation.sentences},
      {"configuration",
       explanation.candidate ? planner::candidate_fields(*explanation.candidate) : Json(nullptr)}};
}

/// The answer, then why; the search's own result follows.
void print_explanation(const planner::Explanation& explanation, Session& session) {
  const int width = session.terminal().width;
  for (const std::string& sentence : explanation.sentences) {
    const bool is_answer = &sentence == &explanation.sentences.front();
    session.print(wrapped((is_answer ? "" : "- ") + sentence, width, 0));
  }
  session.print("\n");
}

void print_costing(const planner::Costing& costing, Session& session) {
  const int width = session.terminal().width;
  session.print(wrapped("Costs: " + costing.why, width, 0));
  session.print(wrapped(costing.otherwise, width, 2));
}

std::string costs_of_text(const planner::ScheduleRequest& request, const Order& order) {
  const std::string text = costs_text(request.costs);
  if (!planner::chooses_placement(request)) return text;
  return "a rank: " + text + "; stages a rank: " + std::to_string(order.stages() / request.ranks);
}

/// The flags with which another command gives the order the same costs.
std::string costs_words(const planner::ScheduleRequest& request, const Arguments& arguments) {
  std::string words;
  for (const std::string name : {"cost", "mem"}) {
    const std::string of_stage = "--" + name, of_rank = "--rank-" + name;
    const bool by_rank = arguments.has(of_rank) || costs_of(request) == CostsOf::Ranks;
    const auto text = arguments.text(arguments.has(of_rank) ? of_rank : of_stage);
    if (text) words += " " + (by_rank ? of_rank : of_stage) + " " + *text;
  }
  return words;
}

/// Without a job: the best order for the costs of the flags.
int synthesise_order(const Arguments& arguments, Session& session) {
  const planner::Schedule& schedule = planner::find_schedule("auto");
  planner::ScheduleRequest request = schedule_request(arguments, schedule);
  add_costs(request, schedule, arguments);
  std::optional<planner::SynthesisResult> found;
  const Order order = make_requested(schedule, request, arguments, session, &found);
  if (session.json()) {
    session.print_result(synthesis_fields(*found));
  } else {
    session.print(wrapped(costs_of_text(request, order), session.terminal().width, 0));
    session.print(wrapped(synthesis_text(*found), session.terminal().width, 0));
  }
  if (const auto out = arguments.text("--out")) {
    session.save(*out, write_order_csv(order));
    session.wrote(*out, "; next: pipewright simulate " + *out + costs_words(request, arguments));
  } else if (!session.json()) {
    session.print(write_order_csv(order));
  }
  return kDone;
}

/// What the best plan's ranks may hold, one for all or by rank.
std::vector<Bytes> memory_limits(const Job& job, const planner::SearchResult& found) {
  if (job.strategy.memory_limit.value > 0) return {job.strategy.memory_limit};
  return found.rank_memory.empty() ? std::vector<Bytes>{job.cluster.device.memory}
                                   : found.rank_memory;
}

/// The plan with a better order, where synthesis finds one.
Plan with_synthesis(const planner::SearchResult& tuned, const Job& job, const Arguments& arguments,
                    Session& session, Json& fields) {
  const Plan& plan = *tuned.best;
  planner::ScheduleRequest parameters;
  add_synthesis_parameters(parameters, planner::find_schedule("auto"), arguments);
  parameters.parameters.erase("placement");  // the plan's
  const auto settings = with_effort(planner::synthesis_request(parameters), arguments, session);
  auto found = planner::synthesise_for_plan(plan, memory_limits(job, tuned), settings);
  session.clear_progress();
  fields = {{"better", found.plan.has_value()}, {"why", found.why}};
  if (found.result.order) {
    fields["search"] = synthesis_fields(found.result);
  }
  if (!session.json()) {
    session.print(wrapped("synthesis: " + found.why, session.terminal().width, 0));
    if (found.result.order) {
      session.print(wrapped("under preset ideal, " + synthesis_text(found.result),
                            session.terminal().width, 0));
    }
  }
  return found.plan ? *std::move(found.plan) : plan;
}

void refuse_opposites(const Arguments& arguments) {
  if (!arguments.has("--synthesise") || !arguments.has("--no-synthesis")) return;
  throw InputError(
      "--synthesise asks for an order of tune's own and --no-synthesis for none; leave one out");
}

void refuse_sizes_of_job(const Arguments& arguments) {
  for (const char* flag : {"--pp", "--micro-batches", "--vpp", "--param", "--jobs", "--placement",
                           "--cost", "--mem", "--rank-cost", "--rank-mem", "--message-bytes"}) {
    if (!arguments.has(flag)) continue;
    throw InputError(std::string(flag) +
                     " belongs to tune --synthesise without a job; a job has its own");
  }
}

planner::SearchOptions options_of(const Arguments& arguments, const Job& job) {
  planner::SearchOptions options;
  options.keep = arguments.integer_or("--top", 1, 1000, 10);
  options.threads = arguments.integer_or("--threads", 0, 1024, 0);
  options.exhaustive = arguments.has("--exhaustive");
  options.front = arguments.has("--front");
  options.synthesis = !arguments.has("--no-synthesis");
  options.only_executable = job.has_run_mode && job.tuner_run_mode != TunerRunMode::TunerOnly;
  const auto budget = arguments.duration("--budget");
  if (budget && !arguments.has("--synthesise"))
    options.budget_seconds = static_cast<double>(budget->value) * 1e-9;
  return options;
}

/// What the job's measured steps make of the estimate; nullopt where they make nothing.
std::optional<planner::MeasuredFit> fit_of(const Job& job, const std::optional<Profile>& profile,
                                           int cores) {
  if (job.measured_steps.empty() || profile) return std::nullopt;
  return planner::fit_measured_steps(job, nullptr, cores);
}

/// With `link`, as one of several processes, of which the first alone writes files.
void share_search(planner::SearchOptions& options, exec::mpi::Link& link) {
  options.share.process = link.process();
  options.share.processes = link.processes();
  options.share.exchange = [&link](const std::string& text) {
    return exec::mpi::all_gather(link, text, InterruptScope::check);
  };
  if (options.threads == 0) options.threads = 1;  // the processes share the cores of their hosts
}

int save_best(const planner::SearchResult& result, const std::string& path, const Job& job,
              const Arguments& arguments, Session& session) {
  if (!result.best) {
    session.note(result.not_executable
                     ? "no plan that run can execute is possible, and tuner_run_mode asks for "
                       "one; with tuner_only the best possible plan is written, which run cannot "
                       "execute"
                     : "no configuration is possible; the reasons are above");
    return kAnswerIsNo;
  }
  const std::string out = arguments.text_or("--out", job.tuner_save_path);
  if (!out.empty()) {
    session.save(out, to_text(to_json(*result.best)));
    session.wrote(out, "; next: pipewright simulate " + out);
  } else {
    session.note("next: pipewright tune " + path + " -o plan.json   (writes the best plan)");
  }
  return kDone;
}

/// A plan as the page shows it.
Subject shown_plan(const Plan& plan, const std::string& source) {
  Subject subject;
  subject.title = planner::title_of(plan);
  subject.source = source;
  subject.program = planner::program_of_plan(plan);
  subject.costs = plan.costs;
  subject.costs_text = costs_text(subject.costs);
  return subject;
}

/// What of the search the page needs besides its result.
struct Searched {
  const Job& job;
  const Profile* profile = nullptr;
  int cores = 0;
};

/// The timelines of the plans behind the best one, in the order of the table, as many as keep the
/// page small.
std::vector<traces::PageData> other_timelines(const planner::SearchResult& result,
                                              const Searched& searched, std::size_t best_size) {
  constexpr std::size_t kMostPlans = 8, kMostInstructions = 500'000;
  const auto costs = planner::costs_of_job(searched.job, searched.profile, searched.cores);
  std::vector<traces::PageData> others;
  std::size_t size = best_size;
  for (std::size_t row = 1; row < std::min(result.ranked.size(), kMostPlans); ++row) {
    InterruptScope::check();
    const Subject subject = shown_plan(planner::plan_of_row(searched.job, *costs, result, row), "");
    size += subject.program.code.size();
    if (size > kMostInstructions) break;
    const sim::Result simulated = sim::simulate(subject.program, subject.costs);
    others.push_back(traces::page_data(subject.program, simulated.timeline, subject.costs));
  }
  return others;
}

/// The ranked table, and the predicted steps of its plans: the best one's, and others to choose.
void save_page(const planner::SearchResult& result, const Searched& searched,
               const Arguments& arguments, Session& session) {
  const auto path = arguments.text("--html");
  if (!path || !result.best) return;
  const Subject subject = shown_plan(*result.best, arguments.positionals().front());
  std::vector<traces::PageData> others =
      other_timelines(result, searched, subject.program.code.size());
  traces::PageNotes notes{.tables = search_tables(result)};
  if (!others.empty()) {
    for (std::size_t row = 0; row <= others.size(); ++row)
      notes.tables.front().timelines.push_back(static_cast<int>(row));
  }
  const Timeline timeline = sim::simulate(subject.program, subject.costs).timeline;
  session.save_page(*path, timeline_page(subject, timeline, std::move(notes), std::move(others)));
}

int tune_job(const Arguments& arguments, Session& session, exec::mpi::Link* link) {
  const std::string& path = arguments.positionals().front();
  Job job = load_job(path);
  for (const std::string& text : job.notes) session.note(text);
  for (const std::string& text : job.cluster.assumed)
    session.note("assumed of the cluster: " + text);
  const auto profile = profile_for(job, arguments.text("--profile"));
  const planner::Costing costing = planner::settle_costing(job, profile ? &*profile : nullptr);
  planner::SearchOptions options = options_of(arguments, job);
  if (arguments.has("--measure"))
    return tune_measured({job, profile, costing, options}, arguments, session);
  if (link != nullptr) share_search(options, *link);
  std::optional<SearchJournalFile> journal;
  if (const auto file = arguments.text("--resume")) {
    journal.emplace(*file, head_of_searches());
    options.journal = &journal->journal();
  }
  planner::SearchResult result = search_with_progress(job, profile, options, session);
  if (link != nullptr && link->process() != 0) return result.best ? kDone : kAnswerIsNo;
  std::optional<planner::MeasuredFit> fit;
  std::optional<planner::DrawnChoice> drawn;
  std::vector<std::string> warnings;
  while_showing("checking the plan", session, [&] {
    planner::fill_intervals(job, profile ? &*profile : nullptr, options.cores, result);
    drawn = choose_if_asked(arguments, job, profile, options.cores, result);
    fit = fit_of(job, profile, options.cores);
    if (result.best && !arguments.has("--synthesise"))
      warnings = planner::stock_verdicts(*result.best);
  });
  Json fields = planner::search_fields(result);
  if (drawn) add_drawn_rows(*drawn, result, fields);
  if (fit) fields["calibration"] = measured_fields(*fit);
  fields["costing"] = planner::costing_fields(costing);
  if (const auto asked = arguments.text("--explain")) {
    const planner::Explanation explanation =
        explain_with_progress(job, profile, options, result, *asked, session);
    fields["explained"] = explanation_fields(explanation);
    if (!session.json()) print_explanation(explanation, session);
  }
  if (!session.json()) {
    print_costing(costing, session);
    if (fit) session.print(measured_text(*fit, session.terminal()));
    print_search(result, session, drawn ? drawn_rows_text(*drawn) : "");
  }
  if (arguments.has("--synthesise") && result.best) {
    result.best = with_synthesis(result, job, arguments, session, fields["synthesis"]);
    warnings = planner::stock_verdicts(*result.best);
  }
  fields["warnings"] = warnings;
  if (session.json()) session.print_result(fields);
  for (const std::string& warning : warnings) session.note("warning: " + warning);
  save_page(result, {job, profile ? &*profile : nullptr, options.cores}, arguments, session);
  return save_best(result, path, job, arguments, session);
}

int run_tune(const Arguments& arguments, Session& session) {
  refuse_opposites(arguments);
  check_measuring_flags(arguments);
  if (arguments.positionals().empty()) {
    if (arguments.has("--html"))
      throw InputError("--html belongs to a job, whose best plan and ranked table it shows");
    if (arguments.has("--samples"))
      throw InputError("--samples belongs to a job, among whose plans it chooses");
    if (arguments.has("--synthesise")) return synthesise_order(arguments, session);
    throw InputError("missing JOB; without one, --synthesise finds an order for --cost");
  }
  refuse_sizes_of_job(arguments);
  if (arguments.has("--samples") && arguments.has("--html"))
    throw InputError(
        "the page of --html shows the first row's plan, and --samples may choose "
        "another; leave one of them out");
  const std::string transport = arguments.text_or("--transport", "local");
  if (transport == "local") return tune_job(arguments, session, nullptr);
  if (arguments.has("--resume"))
    throw InputError("--resume belongs to one process; leave out --transport " + transport);
  require_transport(transport);
  const auto job_kind = job_for(transport);
  if (!job_kind) refuse_outside_job(transport, "tune", "4");
  return run_in_job(*job_kind, session, "tune", [&](exec::mpi::Link& link, Session& own) {
    return tune_job(arguments, own, &link);
  });
}

}  // namespace

Command tune_command() {
  Command command;
  command.name = "tune";
  command.summary = "search mesh, partition, micro-batches and schedule; write the best plan";
  command.description =
      "Every configuration that the job allows is lowered and simulated; the table shows the best "
      "ones, and the baseline (the schedule naive, on several ranks and on one). Costs come from "
      "the profile where there is one, else from operation counts and the device's rate. Exit "
      "status 1: no configuration is possible.";
  command.examples = {
      {"tune examples/job.json -o plan.json", "the ranked table, and the best plan as a file"},
      {"tune examples/job.json --profile examples/profile.json --json",
       "with measured costs, for a script"},
      {"tune examples/job.json --synthesise --budget 2s -o plan.json",
       "and a better order for the best plan's stages, if there is one"},
      {"tune --synthesise -p 4 -m 8 --cost F=9:12:9:14,B=20 -o order.csv",
       "an order for costs of your own"},
  };
  command.positionals = {{.name = "JOB",
                          .help = "a job.json: model, cluster, global batch, strategy",
                          .least = 0,
                          .most = 1}};
  command.flags = {
      {.group = "Search",
       .name = "--profile",
       .argument = "FILE",
       .help = "measured costs, instead of the job's own profile",
       .is_file = true},
      {.group = "Search",
       .name = "--threads",
       .argument = "N",
       .help = "threads to search with; 0: all cores"},
      {.group = "Output",
       .name = "--out",
       .argument = "FILE",
       .help = "where the best plan goes, instead of the job's tuner_save_path",
       .short_name = 'o',
       .is_file = true,
       .writes = Writes::File},
      {.group = "Output", .name = "--top", .argument = "K", .help = "rows of the table"},
      {.group = "Output",
       .name = "--html",
       .argument = "FILE",
       .help = "write an interactive page: the ranked table, and timelines of its "
               "plans, two of them beside each other",
       .is_file = true,
       .writes = Writes::File},
      {.group = "Search",
       .name = "--exhaustive",
       .help = "simulate whatever keeps to the rules and the memory: the same answer"},
      {.group = "Search",
       .name = "--resume",
       .argument = "FILE",
       .help =
           "a journal: goes on where a search was broken off, and takes from it what searches of "
           "other jobs have simulated that is the same here",
       .is_file = true,
       .writes = Writes::Journal},
      {.group = "Search",
       .name = "--transport",
       .argument = "KIND",
       .help = "local: this process alone; mpi, tcp: each process that mpirun, or torchrun, has "
               "started simulates a part (local)",
       .choices = {"local", "mpi", "tcp"},
       .checked = true},
      {.group = "Search",
       .name = "--explain",
       .argument = "CONFIG",
       .help = "why not this one: tp=4,pp=8,schedule=1f1b; the rest as in the best of that kind"},
      {.group = "Search",
       .name = "--front",
       .help = "also the fastest plans for less and less memory"},
      {.group = "Search",
       .name = "--no-synthesis",
       .help = "named schedules only, which other frameworks know; no order of tune's own"},
      {.group = "Search",
       .name = "--synthesise",
       .help = "search an order too: for the best plan's stages, or without a job for --cost"},
  };
  command.flags.push_back(drawn_rows_flag());
  for (const auto& flags : {measuring_flags(), schedule_flags(), cost_flags()}) {
    command.flags.insert(command.flags.end(), flags.begin(), flags.end());
  }
  command.run = run_tune;
  return command;
}

}  // namespace pipewright::tools
