// pipewright analyze: where the time of a step is lost.
#include <optional>

#include "core/base/error.hpp"
#include "core/costs/action_times.hpp"
#include "core/order/order_json.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/figures.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/analyze_run_log.hpp"
#include "tools/commands/analyze_timers.hpp"
#include "tools/commands/commands.hpp"
#include "tools/input/run_log_file.hpp"
#include "tools/input/step.hpp"
#include "tools/input/subject.hpp"
#include "tools/input/trace_files.hpp"
#include "tools/input/trace_program.hpp"
#include "tools/input/traced_replay.hpp"
#include "tools/output/merged_traces.hpp"
#include "tools/output/root_causes_text.hpp"
#include "tools/output/step_page.hpp"
#include "tools/output/timeline_text.hpp"
#include "tools/output/trace_text.hpp"
#include "tools/output/what_if_text.hpp"
#include "traces/analysis/bubbles.hpp"

namespace pipewright::tools {
namespace {

constexpr const char* kAnOrder = "the order";
bool asks_for_order(const Arguments& arguments) {
  return arguments.has("--emit-order") || arguments.has("--out") || arguments.has("--costs-out");
}

Json causes_fields(const traces::BubbleTotals& totals) {
  Json fields = Json::object();
  for (int c = 0; c < traces::kBubbleCauses; ++c) {
    const auto cause = static_cast<traces::BubbleCause>(c);
    fields[nanoseconds_key(to_string(cause))] = totals.of(cause);
  }
  return fields;
}

Json step_fields(const Step& step, const traces::BubbleReport& report,
                 const traces::RootReport& roots) {
  Json fields = figures_fields(step.figures);
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    fields["ranks"][r]["rank"] = step.ranks[r];
    fields["ranks"][r]["bubbles"] = causes_fields(report.ranks[r]);
  }
  add_root_fields(step.program, step.ranks, roots, fields);
  const Straggler straggler = straggler_of(step.figures);
  fields["bubbles"] = causes_fields(report.total);
  fields["straggler"] = {{"rank", step.ranks.empty() ? 0 : step.ranks[straggler.row]},
                         {"busy_above_mean", straggler.above_mean}};
  if (step.read) add_trace_fields(*step.read, fields);
  return fields;
}

std::string share(std::int64_t part, std::int64_t whole) {
  if (part == 0 || whole == 0) return "-";
  return percent_text(static_cast<double>(part) / static_cast<double>(whole));
}

constexpr std::string_view short_name(traces::BubbleCause cause) {
  switch (cause) {
    case traces::BubbleCause::Fill:
      return "fill";
    case traces::BubbleCause::Drain:
      return "drain";
    case traces::BubbleCause::Data:
      return "data";
    case traces::BubbleCause::Imbalance:
      return "imbal.";
    case traces::BubbleCause::Transfer:
      return "transfer";
    case traces::BubbleCause::Overhead:
      return "overh.";
    case traces::BubbleCause::Stuck:
      return "stuck";
  }
  return "";
}

std::string table_text(const Step& step, const traces::BubbleReport& report,
                       const Terminal& terminal) {
  using Align = Table::Align;
  std::vector<Table::Column> columns = {{"rank"}, {"busy", Align::Right}, {"idle", Align::Right}};
  std::vector<traces::BubbleCause> causes;
  for (int c = 0; c < traces::kBubbleCauses; ++c) {
    const auto cause = static_cast<traces::BubbleCause>(c);
    if (report.total.of(cause) == 0) continue;
    causes.push_back(cause);
    columns.push_back({std::string(short_name(cause)), Align::Right});
  }
  columns.push_back({"peak", Align::Right});
  Table table(columns);
  const std::int64_t whole = step.figures.makespan_ns;
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    std::vector<std::string> cells = {std::to_string(step.ranks[r]),
                                      share(step.figures.ranks[r].busy_ns, whole),
                                      share(report.ranks[r].sum(), whole)};
    for (const auto cause : causes) cells.push_back(share(report.ranks[r].of(cause), whole));
    cells.push_back(std::to_string(step.figures.ranks[r].peak_activations));
    table.add(std::move(cells));
  }
  const std::int64_t all = whole * static_cast<std::int64_t>(step.ranks.size());
  std::vector<std::string> cells = {"all", share(all - report.total.sum(), all),
                                    share(report.total.sum(), all)};
  for (const auto cause : causes) cells.push_back(share(report.total.of(cause), all));
  cells.emplace_back();
  table.add(std::move(cells), Ink::Bold);
  return table.text(terminal);
}

void print_step(const Step& step, const traces::BubbleReport& report,
                const traces::RootReport& roots, Session& session) {
  const Terminal& terminal = session.terminal();
  session.print(painted(terminal, Ink::Bold, wrapped(step.title, terminal.width, 0)));
  session.print("step " + format_duration(Nanoseconds(step.figures.makespan_ns)) + "   bubble " +
                percent_text(step.figures.bubble_ratio) + "\n");
  traces::TraceTimeline drawn = traces::trace_timeline(step.program, step.timeline);
  for (std::size_t r = 0; r < step.ranks.size(); ++r) drawn.ranks[r].rank = step.ranks[r];
  session.print(timeline_text(drawn, terminal.width, terminal));
  session.print("shares of the step, by cause (docs/metrics.md):\n");
  session.print(table_text(step, report, terminal));
  session.print(roots_text(step, roots, terminal));
  if (const std::string text = straggler_text(step); !text.empty())
    session.print(wrapped(text, terminal.width, 0));
  if (step.read) session.print(trace_text(*step.read, terminal));
}

Json costs_fields(const TracedReplay& replay) {
  return {{"latency_ns", replay.costs.latency.value},
          {"messages", replay.costs.messages},
          {"replayed_step_ns", replay.timeline.makespan_ns}};
}

std::string replay_text(const TracedReplay& replay, const Step& step, const Arguments& arguments) {
  return "the order simulated with these costs takes " +
         format_duration(Nanoseconds(replay.timeline.makespan_ns)) + ", " +
         percent_text(replay_error(replay, step)) + " from the trace: pipewright simulate " +
         arguments.text_or("--out", "order.csv") + " --costs " + *arguments.text("--costs-out") +
         " --cost comm=" + std::to_string(replay.costs.latency.value);
}

/// The files that were asked for.
void save_files(const Step& step, const traces::BubbleReport& report,
                const traces::RootReport& roots, const std::optional<TracedReplay>& replay,
                const WhatIfs& what_ifs, const Arguments& arguments, Session& session) {
  if (const auto path = arguments.text("--html")) {
    traces::PageNotes notes;
    add_what_if_table(what_ifs, notes);
    session.save_page(*path, step_page(step, report, roots, std::move(notes)));
  }
  if (const auto path = arguments.text("--out")) {
    session.save(*path, write_order_csv(*step.order));
    session.wrote(*path);
  }
  if (!replay) return;
  const std::string path = *arguments.text("--costs-out");
  session.save(path, write_action_times_csv(replay->costs.times));
  session.wrote(path);
  session.note(replay_text(*replay, step, arguments));
}

/// Flags that only traces have.
std::vector<Flag> trace_flags() {
  return {
      step_flag(),
      {.group = "Output",
       .name = "--out",
       .argument = "FILE",
       .help = "write what each rank computed, in its order, as a CSV that simulate and check read",
       .short_name = 'o',
       .is_file = true,
       .writes = Writes::File},
      {.group = "Output",
       .name = "--costs-out",
       .argument = "FILE",
       .help = "write what each action took from when it could begin, as simulate --costs reads it",
       .is_file = true,
       .writes = Writes::File},
      merged_flag(),
  };
}

Step read_trace_step(const std::vector<std::string>& files, const Arguments& arguments,
                     std::vector<RankTrace>& to_merge) {
  TraceFiles read = read_trace_files(files);
  if (arguments.has("--merged")) to_merge = rank_traces(read);
  Step step = traced_step(choose_step(std::move(read), step_number(arguments)));
  if (asks_for_order(arguments)) step.order = order_of_trace(step.read->joined.trace, kAnOrder);
  return step;
}

int run_analyze(const Arguments& arguments, Session& session) {
  const auto& files = arguments.positionals();
  if (arguments.has("--watch")) {
    if (files.empty()) throw InputError("--watch follows a run: give the FILE of its --log");
    return analyze_run_log(arguments, session);
  }
  if (!files.empty()) {
    if (is_run_log(files.front())) return analyze_run_log(arguments, session);
    if (const auto log = timer_log(files.front())) return analyze_timers(*log, arguments, session);
  }
  const bool trace = !files.empty() && !arguments.has("--schedule") && is_trace(files.front());
  if (!trace && files.size() > 1) {
    throw InputError(files[1], "",
                     "is one file too many: only traces may be several files, one for each rank");
  }
  if (trace) {
    refuse_flags(arguments, subject_flags(),
                 "belongs to what is simulated; a trace brings its own times");
  } else {
    refuse_flags(arguments, trace_flags(),
                 "belongs to traces; simulate --emit-order writes orders");
  }
  std::vector<RankTrace> to_merge;
  const Step step = trace ? read_trace_step(files, arguments, to_merge)
                          : simulated_step(read_subject(arguments, Purpose::Predict, session));
  const traces::BubbleReport report = bubbles_of(step);
  const traces::RootReport roots = roots_of(step, report);
  std::optional<TracedReplay> replay;
  if (arguments.has("--costs-out")) replay = replay_of(step, *step.order);
  const bool what_if = asks_what_if(arguments);
  WhatIfs what_ifs;
  if (what_if || arguments.has("--html")) what_ifs = what_ifs_of(step, arguments, replay);
  if (session.json()) {
    Json fields = step_fields(step, report, roots);
    if (arguments.has("--emit-order")) fields["order"] = rows_json(*step.order);
    if (replay) fields["costs"] = costs_fields(*replay);
    if (what_if) fields["what_if"] = what_if_fields(what_ifs);
    session.print_result(fields);
  } else {
    print_step(step, report, roots, session);
    if (what_if) session.print(what_if_text(what_ifs, session.terminal()));
    if (arguments.has("--emit-order")) session.print(write_order_csv(*step.order));
  }
  save_files(step, report, roots, replay, what_ifs, arguments, session);
  if (const auto path = arguments.text("--merged"))
    save_merged(*path, to_merge, step.read->joined.clocks, session);
  return kDone;
}

}  // namespace

Command analyze_command() {
  Command command;
  command.name = "analyze";
  command.summary = "say where the time of a step is lost: bubbles by cause, stragglers";
  command.description =
      "Reads a trace of Pipewright, or those of PyTorch's ranks (a file each in any order, or "
      "their folder), or simulates a plan, an order or a schedule as simulate does. PyTorch waits "
      "for an "
      "input inside the slice that needs it: this wait is taken out of the slice, and the output "
      "says by which rule. On GPUs an action takes the time of the kernels that it launched. Where "
      "the ranks' clocks would let a message end before it began, they are set right by the "
      "messages, with what these leave open. In a trace that does not show its transfers, waiting "
      "for one is counted as waiting for a transfer. "
      "Of a training log it reads what Megatron-LM's timers say of each rank (--timing-log-level 2 "
      "--timing-log-option all), by stage with --pp, and with --micro-batches simulates the "
      "schedule with the costs that they show. Of the log that run --log writes it says how far "
      "the "
      "run came, what its steps took and how its loss went; --watch follows a run that goes on.";
  command.examples = {
      {"analyze examples/real.trace.json", "where did the machine lose its time?"},
      {"analyze examples/real.trace.json --html page.html", "as a page to look around in"},
      {"analyze --schedule 1f1b --pp 4 --micro-batches 8", "and where does the schedule?"},
      {"analyze examples/real.trace.json --what-if", "what would be gained by what?"},
      {"run --schedule 1f1b --pp 2 --micro-batches 8 --steps 50 --log run.log", "a run with a log"},
      {"analyze run.log --watch", "from another terminal, until it has ended"},
  };
  command.positionals = {subject_file()};
  command.positionals.front().help =
      "traces (.json or .json.gz, or a folder of them), a log with Megatron-LM's timers or of run "
      "--log, or what simulate reads; - is a trace on standard input";
  command.positionals.front().most = kAnyNumber;
  command.flags = subject_flags();
  for (Flag& flag : trace_flags()) command.flags.push_back(std::move(flag));
  command.flags.push_back({.group = "Output",
                           .name = "--html",
                           .argument = "FILE",
                           .help = "write an interactive page: timeline, causes of idle time, "
                                   "critical path, clocks",
                           .is_file = true,
                           .writes = Writes::File});
  for (Flag& flag : what_if_flags()) command.flags.push_back(std::move(flag));
  command.flags.push_back({.group = "Output",
                           .name = "--emit-order",
                           .help = "the actions of each rank too: \"order\" in JSON, else as CSV"});
  command.flags.push_back(watch_flag());
  command.run = run_analyze;
  return command;
}

}  // namespace pipewright::tools
