// pipewright simulate: the predicted timeline of a plan, an order or a schedule.
#include "core/order/order_json.hpp"
#include "planner/bounds/closed_form.hpp"
#include "sim/engine.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/figures.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"
#include "tools/input/expanded.hpp"
#include "tools/input/megatron_exchange.hpp"
#include "tools/input/memory_limit.hpp"
#include "tools/input/subject.hpp"
#include "tools/input/synthesis.hpp"
#include "tools/output/chakra_files.hpp"
#include "tools/output/timeline_files.hpp"
#include "tools/output/timeline_text.hpp"
#include "tools/output/verdict.hpp"
#include "tools/output/what_if_text.hpp"
#include "tools/running/drawn_steps.hpp"
#include "tools/running/unlisted_step.hpp"

namespace pipewright::tools {
namespace {

/// Beside the simulated bubble, where a formula holds for exactly these assumptions.
std::string closed_form_text(const Subject& subject) {
  const auto* named = std::get_if<NamedSchedule>(&subject.given);
  const CostTable& costs = subject.costs;
  if (named == nullptr || !same_for_all(costs) || costs.stages.empty() ||
      !subject.program.policy.is_free_of_waits() || costs.stages.front().opt.value > 0 ||
      costs.overlapped_pair.value > 0) {
    return "";
  }
  const auto form = planner::closed_form(named->schedule->name, named->request,
                                         costs.stages.front(), costs.every_route.latency);
  if (!form || form->makespan_ns == 0) return "";
  const double ratio =
      static_cast<double>(form->bubble_ns) / static_cast<double>(form->makespan_ns);
  return " (formula " + percent_text(ratio) + ")";
}

void print_head(const Subject& subject, const Arguments& arguments, Session& session) {
  const int width = session.terminal().width;
  session.print(painted(session.terminal(), Ink::Bold, wrapped(subject.title, width, 0)));
  session.print(wrapped(subject.costs_text, width, 0));
  std::string policy = "policy " + policy_text(subject.program.policy);
  if (!names_policy(arguments) && !asked_exchange(arguments) && subject.plan() == nullptr) {
    policy += ": the papers' model, taken because no policy is named";
  }
  session.print(wrapped(policy, width, 0));
}

void print_figures(const Subject& subject, const Figures& figures, Session& session) {
  session.print("step " + format_duration(Nanoseconds(figures.makespan_ns)) + "   bubble " +
                percent_text(figures.bubble_ratio) + closed_form_text(subject) + "\n");
  if (const auto* found = std::get_if<planner::SynthesisResult>(&subject.given))
    session.print(wrapped(synthesis_text(*found), session.terminal().width, 0));
  if (!subject.costs.memory.empty()) {
    std::size_t fullest = 0;
    for (std::size_t r = 0; r < figures.ranks.size(); ++r) {
      if (figures.ranks[r].peak_bytes > figures.ranks[fullest].peak_bytes) fullest = r;
    }
    session.print("peak memory " + format_bytes(Bytes(figures.ranks[fullest].peak_bytes)) +
                  " on rank " + std::to_string(fullest) + "\n");
  }
}

/// Of a Program that --expand wrote out: each rank by the first of its devices, and all of these.
Json all_figures(const Program& program, const Figures& figures, int expanded) {
  if (expanded == 1) return figures_fields(figures, devices_of_rank(program.mesh));
  Figures of_ranks = figures;
  of_ranks.ranks.clear();
  for (std::size_t r = 0; r < figures.ranks.size(); r += static_cast<std::size_t>(expanded))
    of_ranks.ranks.push_back(figures.ranks[r]);
  Json fields = figures_fields(of_ranks, expanded);
  fields["devices"] = rank_fields(figures.ranks);
  return fields;
}

/// The figures of a step whose actions are not listed.
int show_unlisted(const UnlistedStep& unlisted, const Arguments& arguments, Session& session) {
  const Figures& figures = unlisted.step.figures;
  const auto over = over_memory(figures.ranks, unlisted.subject.memory_limit);
  if (session.json()) {
    session.print_result(figures_fields(figures));
  } else {
    print_head(unlisted.subject, arguments, session);
    session.print(wrapped(unlisted_text(unlisted), session.terminal().width, 0));
    print_figures(unlisted.subject, figures, session);
  }
  for (const auto& sentence : over) session.note(sentence);
  return over.empty() ? kDone : kAnswerIsNo;
}

/// For what is printed, and for the page.
WhatIfs what_ifs_wanted(const Subject& subject, const Timeline& timeline,
                        const Arguments& arguments) {
  if (!asks_what_if(arguments) && !arguments.has("--html")) return {};
  return what_ifs_of(subject.program, subject.costs, timeline, arguments);
}

int run_simulate(const Arguments& arguments, Session& session) {
  session.progress("reading and lowering ...");
  if (const auto unlisted = unlisted_step(arguments, session))
    return show_unlisted(*unlisted, arguments, session);
  Subject subject = read_subject(arguments, Purpose::Predict, session);
  if (!subject.problems.empty()) {
    WaitReport report;
    report.verdict = Verdict::Invalid;
    return show_verdict(subject, report, session);
  }
  exchange_as_asked(arguments, subject);
  const int expanded = expand_if_asked(arguments, subject);
  // The Program says it all; of many micro-batches the order is as large.
  if (!arguments.has("--emit-order")) subject.order = {};
  session.progress("simulating " + std::to_string(subject.program.code.size()) +
                   " instructions ...");
  const sim::Result result = sim::simulate(subject.program, subject.costs);
  session.progress("drawing the timeline ...");
  if (!result.finished) {
    save_timeline_files(arguments, session, subject, result.timeline,
                        traces::TraceInfo::Kind::Simulated);
    return show_verdict(subject, sim::check(subject.program, subject.costs), session);
  }
  const Figures figures = figures_of(subject.program, result.timeline, subject.costs);
  const auto drawn = drawn_steps(arguments, subject);
  const auto over = over_memory(figures.ranks, subject.memory_limit);
  const auto what_ifs = what_ifs_wanted(subject, result.timeline, arguments);
  traces::PageNotes notes;
  add_what_if_table(what_ifs, notes);
  save_timeline_files(arguments, session, subject, result.timeline,
                      traces::TraceInfo::Kind::Simulated, "", std::move(notes));
  save_chakra_files(arguments, session, subject, result.timeline);
  if (session.json()) {
    Json fields = all_figures(subject.program, figures, expanded);
    if (const auto* found = std::get_if<planner::SynthesisResult>(&subject.given))
      fields["synthesis"] = synthesis_fields(*found);
    if (drawn) fields["drawn_steps"] = to_json(*drawn);
    if (asks_what_if(arguments)) fields["what_if"] = what_if_fields(what_ifs);
    if (arguments.has("--emit-order")) fields["order"] = rows_json(subject.order);
    session.print_result(fields);
  } else {
    print_head(subject, arguments, session);
    session.print(timeline_text(subject.program, result.timeline, session.terminal().width,
                                session.terminal()));
    print_figures(subject, figures, session);
    if (drawn) session.print(drawn_steps_text(*drawn) + "\n");
    if (asks_what_if(arguments)) session.print(what_if_text(what_ifs, session.terminal()));
    if (arguments.has("--emit-order")) session.print(write_order_csv(subject.order));
  }
  for (const auto& sentence : over) session.note(sentence);
  if (!session.json() && !arguments.has("--trace"))
    session.note("next: add --trace t.json.gz and open it in ui.perfetto.dev");
  return over.empty() ? kDone : kAnswerIsNo;
}

}  // namespace

Command simulate_command() {
  Command command;
  command.name = "simulate";
  command.summary = "predict the timeline, the bubble and the memory of a step";
  command.description =
      "Without a policy flag a plan is simulated under its own policy; a schedule and a CSV under "
      "the preset ideal, the papers' model, in which a transfer is a latency and nothing else. "
      "Exit status 1: the Program gets stuck, or a rank needs more than the limit of --mem.";
  command.examples = {
      {"simulate --schedule 1f1b --pp 4 --micro-batches 8 --cost F=1,B=2",
       "the textbook picture, with the textbook's bubble beside it"},
      {"simulate examples/plan.json --trace sim.trace.json.gz",
       "a tuned plan, for ui.perfetto.dev"},
      {"simulate -s auto -p 3 -m 6 --cost F=5,B=9 --mem F=1,limit=3 --prove",
       "the best order for these costs and this limit, with a proof"},
      {"simulate examples/plan.json --samples 1000 --profile examples/profile.json",
       "the step time as an interval, from how the measurements are spread"},
      {"simulate -s 1f1b -p 4 -m 8 --cost F=1ms:1ms:1ms:2ms,B=2ms,comm=100us --what-if",
       "what would a faster rank, link or kind of action gain?"},
      {"simulate examples/order.csv --preset nccl-one-stream --json", "an order of your own"},
  };
  command.positionals = {subject_file()};
  command.flags = subject_flags();
  command.flags.push_back(expand_flag());
  command.flags.push_back(megatron_flag());
  for (auto& flag : timeline_file_flags()) command.flags.push_back(std::move(flag));
  command.flags.push_back(chakra_flag());
  for (auto& flag : drawn_steps_flags()) command.flags.push_back(std::move(flag));
  for (auto& flag : what_if_flags()) command.flags.push_back(std::move(flag));
  command.flags.push_back({.group = "Output",
                           .name = "--emit-order",
                           .help = "the actions of each rank too: \"order\" in JSON, else as CSV"});
  command.run = run_simulate;
  return command;
}

}  // namespace pipewright::tools
