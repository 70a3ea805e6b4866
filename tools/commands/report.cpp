// pipewright report: a page about a step, or about two of them.
#include <algorithm>
#include <iterator>
#include <set>

#include "core/base/error.hpp"
#include "sim/engine.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/figures.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"
#include "tools/input/step.hpp"
#include "tools/output/comparison_page.hpp"
#include "tools/output/root_causes_text.hpp"
#include "tools/output/step_page.hpp"
#include "tools/output/timeline_report.hpp"
#include "tools/output/verdict.hpp"
#include "tools/output/what_if_text.hpp"
#include "tools/running/result_notes.hpp"

namespace pipewright::tools {
namespace {

void save_report(const Arguments& arguments, const std::string& page, Session& session) {
  session.save_page(*arguments.text("--out"), page);
}

Json report_fields(const std::string& title, const Figures& figures) {
  Json fields = figures_fields(figures);
  fields["title"] = title;
  return fields;
}

/// What the command was given: steps, and results that say more about them.
struct Given {
  std::vector<std::string> steps;
  bool all_traces = true, any_trace = false;  // of the steps
  traces::PageNotes notes;
};

/// What is shown of one: a subject that gets stuck too, with why.
int report_subject(const Subject& subject, traces::PageNotes notes, const Arguments& arguments,
                   Session& session) {
  refuse_unwhole(subject);
  const sim::Result result = sim::simulate(subject.program, subject.costs);
  if (result.finished)
    add_what_if_table(what_ifs_of(subject.program, subject.costs, result.timeline, arguments),
                      notes);
  save_report(arguments, timeline_page(subject, result.timeline, std::move(notes)), session);
  const Terminal& terminal = session.terminal();
  if (!session.json())
    session.print(painted(terminal, Ink::Bold, wrapped(subject.title, terminal.width, 0)));
  if (!result.finished) {
    const WaitReport report = sim::check(subject.program, subject.costs);
    if (session.json()) {
      session.print_result(
          {{"title", subject.title}, {"verdict", verdict_fields(subject.program, report, {})}});
    } else {
      session.print(verdict_text(subject.program, report, {}, terminal));
    }
    return kAnswerIsNo;
  }
  const Figures figures = figures_of(subject.program, result.timeline, subject.costs);
  if (session.json()) {
    session.print_result({{"steps", Json::array({report_fields(subject.title, figures)})}});
  } else {
    session.print(step_headline(figures) + "\n");
  }
  return kDone;
}

int report_trace(const Step& step, traces::PageNotes notes, const Arguments& arguments,
                 Session& session) {
  add_what_if_table(what_ifs_of(step, arguments), notes);
  const traces::BubbleReport bubbles = bubbles_of(step);
  save_report(arguments, step_page(step, bubbles, roots_of(step, bubbles), std::move(notes)),
              session);
  const Terminal& terminal = session.terminal();
  if (session.json()) {
    session.print_result({{"steps", Json::array({report_fields(step.title, step.figures)})}});
    return kDone;
  }
  session.print(painted(terminal, Ink::Bold, wrapped(step.title, terminal.width, 0)) +
                step_headline(step.figures) + "\n");
  for (const std::string& line : lines_about(step)) session.print(wrapped(line, terminal.width, 0));
  return kDone;
}

std::string rank_list(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

int report_two(const Step& a, const Step& b, traces::PageNotes notes, const Arguments& arguments,
               Session& session) {
  refuse_flags(arguments, what_if_flags(), "belongs to a report of one step");
  if (a.ranks != b.ranks) {
    throw InputError(b.title, "",
                     "shows ranks " + rank_list(b.ranks) + ", and " + a.title + " shows " +
                         rank_list(a.ranks) + "; two steps are compared rank by rank");
  }
  const traces::Comparison comparison = compared(neutral_form(a), neutral_form(b));
  save_report(arguments, comparison_page(a, b, comparison, std::move(notes)), session);
  if (session.json()) {
    session.print_result({{"steps", Json::array({report_fields(a.title, a.figures),
                                                 report_fields(b.title, b.figures)})}});
    return kDone;
  }
  const int width = session.terminal().width;
  for (const auto& [letter, step] : {std::pair("A: ", &a), std::pair("B: ", &b)}) {
    session.print(wrapped(letter + step->title, width, 0));
    session.print("   " + step_headline(step->figures) + "\n");
  }
  return kDone;
}

Step chosen_step(TraceFiles files, const Arguments& arguments) {
  return traced_step(choose_step(std::move(files), step_number(arguments)));
}

Step read_one(const std::string& file, const Arguments& arguments, Session& session) {
  if (is_trace(file)) return chosen_step(read_trace_files({file}), arguments);
  return simulated_step(read_subject_file(file, arguments, Purpose::Predict, session));
}

std::set<int> ranks_of(const TraceFiles& files) {
  std::set<int> ranks;
  for (const auto& steps : files) {
    for (const traces::TraceTimeline& step : steps) {
      for (const traces::TraceRank& rank : step.ranks) ranks.insert(rank.rank);
    }
  }
  return ranks;
}

bool have_a_rank_in_common(const TraceFiles& a, const TraceFiles& b) {
  const std::set<int> others = ranks_of(b);
  return std::ranges::any_of(ranks_of(a), [&](int rank) { return others.contains(rank); });
}

int report_traces(Given given, const Arguments& arguments, Session& session) {
  const auto report_joined = [&](TraceFiles files) {
    return report_trace(chosen_step(std::move(files), arguments), std::move(given.notes), arguments,
                        session);
  };
  if (given.steps.size() != 2 || are_of_one_job(given.steps))
    return report_joined(read_trace_files(given.steps));
  TraceFiles a = read_trace_files({given.steps[0]}), b = read_trace_files({given.steps[1]});
  if (have_a_rank_in_common(a, b))
    return report_two(chosen_step(std::move(a), arguments), chosen_step(std::move(b), arguments),
                      std::move(given.notes), arguments, session);
  // Traces of different ranks are of one job.
  std::move(b.begin(), b.end(), std::back_inserter(a));
  return report_joined(std::move(a));
}

int report_files(Given given, const Arguments& arguments, Session& session) {
  if (given.all_traces) return report_traces(std::move(given), arguments, session);
  const std::vector<std::string>& files = given.steps;
  if (files.size() > 2) {
    throw InputError(files[2], "",
                     "is one file too many: report shows one step or two; only the traces of one "
                     "job's ranks may be more files");
  }
  const Step a = read_one(files[0], arguments, session);
  const Step b = read_one(files[1], arguments, session);
  return report_two(a, b, std::move(given.notes), arguments, session);
}

/// Results and no step: what was printed, without a timeline.
int report_results(const Given& given, const Arguments& arguments, Session& session) {
  refuse_flags(arguments, what_if_flags(), "belongs to a report of one step");
  traces::PageText text;
  text.title = arguments.positionals().front();
  text.notes = given.notes;
  save_report(arguments, traces::html_page(text, {}), session);
  if (session.json()) {
    session.print_result({{"steps", Json::array()}});
    return kDone;
  }
  for (const traces::PageCheck& check : given.notes.checks)
    session.print(wrapped(check.text, session.terminal().width, 0));
  return kDone;
}

void add_notes(traces::PageNotes from, traces::PageNotes& to) {
  std::move(from.checks.begin(), from.checks.end(), std::back_inserter(to.checks));
  std::move(from.charts.begin(), from.charts.end(), std::back_inserter(to.charts));
  std::move(from.tables.begin(), from.tables.end(), std::back_inserter(to.tables));
}

Given given_files(const Arguments& arguments) {
  Given given;
  for (const std::string& file : arguments.positionals()) {
    if (is_result(file)) {
      add_notes(read_result_notes(file), given.notes);
    } else {
      const bool trace = is_trace(file);
      given.all_traces &= trace;
      given.any_trace |= trace;
      given.steps.push_back(file);
    }
  }
  return given;
}

int run_report(const Arguments& arguments, Session& session) {
  if (!arguments.has("--out"))
    throw InputError("--out: say where the page goes: pipewright report A -o report.html");
  if (arguments.has("--schedule") && !arguments.positionals().empty())
    throw InputError("give files or --schedule, not both");
  Given given = given_files(arguments);
  const std::vector<std::string>& files = given.steps;
  const bool traces = !files.empty() && given.all_traces;
  if (traces)
    refuse_flags(arguments, subject_flags(),
                 "belongs to what is simulated; a trace brings its own times");
  if (!given.any_trace) refuse_flags(arguments, {step_flag()}, "belongs to traces");
  if (files.size() > 1 || traces) return report_files(std::move(given), arguments, session);
  if (files.empty() && !arguments.positionals().empty())
    return report_results(given, arguments, session);
  const Subject subject =
      files.empty() ? read_subject(arguments, Purpose::Predict, session)
                    : read_subject_file(files.front(), arguments, Purpose::Predict, session);
  return report_subject(subject, std::move(given.notes), arguments, session);
}

}  // namespace

Command report_command() {
  Command command;
  command.name = "report";
  command.summary = "make one interactive page about a step, or about two beside each other";
  command.description =
      "A step is a plan, an order or a schedule, which is simulated as simulate does it, or a "
      "trace of Pipewright or of PyTorch's ranks (a folder, or a file each), which is read as "
      "analyze does it. Of two the page shows the timelines one below the other, and the "
      "difference of each action; two traces of different ranks are one step. The page asks for "
      "nothing from a network (docs/page.md). What run or tune printed with --json adds losses and "
      "verification, or the ranked table. Exit status 1: the one step gets stuck; the page "
      "shows where, and why.";
  command.examples = {
      {"report examples/plan.json -o report.html", "what a plan's step will look like"},
      {"report examples/sim.trace.json examples/real.trace.json -o report.html",
       "a prediction and a run, action by action"},
      {"report examples/order.csv examples/order.csv --cost F=1ms,B=2ms -o report.html",
       "two orders with the same costs"},
  };
  command.positionals = {subject_file()};
  command.positionals.front().help =
      "one step or two: plans, orders, traces (.json or .json.gz, or a folder of them); more "
      "files are the traces of one job's ranks; and results of --json";
  command.positionals.front().most = kAnyNumber;
  command.flags = subject_flags();
  command.flags.push_back(step_flag());
  for (Flag& flag : what_if_flags()) command.flags.push_back(std::move(flag));
  command.flags.push_back({.group = "Output",
                           .name = "--out",
                           .argument = "FILE",
                           .help = "where the page goes",
                           .short_name = 'o',
                           .is_file = true,
                           .writes = Writes::File});
  command.run = run_report;
  return command;
}

}  // namespace pipewright::tools
