// pipewright analyze: where the time of a step is lost.
#include <algorithm>

#include "core/error.hpp"
#include "sim/engine.hpp"
#include "tools/arguments.hpp"
#include "tools/commands.hpp"
#include "tools/exit_status.hpp"
#include "tools/figures.hpp"
#include "tools/session.hpp"
#include "tools/subject.hpp"
#include "tools/table.hpp"
#include "tools/timeline_text.hpp"
#include "tools/trace_program.hpp"
#include "traces/bubbles.hpp"
#include "traces/read_trace.hpp"

namespace pipewright::tools {
namespace {

/// What is analysed, wherever it comes from.
struct Step {
  std::string title;
  Program program;
  Timeline timeline;
  Figures figures;
  std::vector<int> ranks;  // numbers of the rows
};

bool has_suffix_of_trace(const std::string& path) {
  return path.ends_with(".gz") || path.find("trace") != path.npos;
}

/// Traces have "traceEvents"; plans and jobs have "schema".
bool is_trace(const std::string& path) {
  if (path == "-" || path.ends_with(".gz")) return true;
  if (!path.ends_with(".json")) return false;
  const std::string text = read_text(path);
  const std::string_view head = std::string_view(text).substr(0, 4096);
  return head.find("\"traceEvents\"") != head.npos ||
         (head.find("\"schema\"") == head.npos && has_suffix_of_trace(path));
}

Step step_of_trace(const std::string& path, const Arguments& arguments) {
  refuse_flags(arguments, subject_flags(),
               "belongs to what is simulated; a trace brings its own times");
  const traces::TraceTimeline trace = traces::read_trace(path);
  for (const auto& rank : trace.ranks) {
    for (const auto& span : rank.spans) {
      if (span.kind == traces::SpanKind::Stuck) {
        throw InputError(path, "rank " + std::to_string(rank.rank),
                         "the trace is of a run that got stuck at " + to_string(span.cell) +
                             "; use pipewright check on its order");
      }
    }
  }
  TraceProgram read = program_of_trace(trace);
  Step step{
      .title = path, .program = std::move(read.program), .timeline = std::move(read.timeline)};
  step.figures = figures_of(step.program, step.timeline, CostTable{});
  for (const auto& rank : trace.ranks) step.ranks.push_back(rank.rank);
  return step;
}

Step step_of_subject(const Arguments& arguments, Session& session) {
  Subject subject = read_subject(arguments, Purpose::Predict, session);
  if (!subject.problems.empty()) {
    const std::string& problem = subject.problems.front();
    const bool names_file = problem.starts_with(subject.source);
    throw InputError(names_file ? "" : subject.source, "", problem + "; see pipewright check");
  }
  sim::Result result = sim::simulate(subject.program, subject.costs);
  if (!result.finished) {
    throw InputError(subject.source, "",
                     "gets stuck under policy " + subject.policy_text + "; see pipewright check");
  }
  Step step{.title = subject.title + " (simulated)",
            .program = std::move(subject.program),
            .timeline = std::move(result.timeline)};
  step.figures = figures_of(step.program, step.timeline, subject.costs);
  for (int r = 0; r < step.program.ranks(); ++r) step.ranks.push_back(r);
  return step;
}

/// The rank that computes longest, and by how much more than the mean.
struct Straggler {
  std::size_t row = 0;
  double above_mean = 0;
};

Straggler straggler_of(const Figures& figures) {
  Straggler straggler;
  double sum = 0;
  for (std::size_t r = 0; r < figures.ranks.size(); ++r) {
    sum += static_cast<double>(figures.ranks[r].busy_ns);
    if (figures.ranks[r].busy_ns > figures.ranks[straggler.row].busy_ns) straggler.row = r;
  }
  const double mean = sum / static_cast<double>(std::max<std::size_t>(1, figures.ranks.size()));
  if (mean > 0) {
    straggler.above_mean = static_cast<double>(figures.ranks[straggler.row].busy_ns) / mean - 1;
  }
  return straggler;
}

std::string cause_key(traces::BubbleCause cause) {
  std::string key(to_string(cause));
  std::replace(key.begin(), key.end(), ' ', '_');
  return key + "_ns";
}

Json causes_fields(const traces::BubbleTotals& totals) {
  Json fields = Json::object();
  for (int c = 0; c < traces::kBubbleCauses; ++c) {
    const auto cause = static_cast<traces::BubbleCause>(c);
    fields[cause_key(cause)] = totals.of(cause);
  }
  return fields;
}

Json step_fields(const Step& step, const traces::BubbleReport& report) {
  Json fields = figures_fields(step.figures);
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    fields["ranks"][r]["rank"] = step.ranks[r];
    fields["ranks"][r]["bubbles"] = causes_fields(report.ranks[r]);
  }
  const Straggler straggler = straggler_of(step.figures);
  fields["bubbles"] = causes_fields(report.total);
  fields["straggler"] = {{"rank", step.ranks.empty() ? 0 : step.ranks[straggler.row]},
                         {"busy_above_mean", straggler.above_mean}};
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

void print_step(const Step& step, const traces::BubbleReport& report, Session& session) {
  const Terminal& terminal = session.terminal();
  session.print(painted(terminal, Ink::Bold, wrapped(step.title, terminal.width, 0)));
  session.print("step " + format_duration(Nanoseconds(step.figures.makespan_ns)) + "   bubble " +
                percent_text(step.figures.bubble_ratio) + "\n");
  session.print(timeline_text(step.program, step.timeline, terminal.width, terminal));
  session.print("shares of the step, by cause (docs/metrics.md):\n");
  session.print(table_text(step, report, terminal));
  const Straggler straggler = straggler_of(step.figures);
  if (straggler.above_mean > 0.01) {
    session.print(wrapped("rank " + std::to_string(step.ranks[straggler.row]) +
                              " computes longest: " + percent_text(straggler.above_mean) +
                              " more than the mean; move work away from it",
                          terminal.width, 0));
  }
}

int run(const Arguments& arguments, Session& session) {
  const auto& files = arguments.positionals();
  const bool trace = !files.empty() && !arguments.has("--schedule") && is_trace(files.front());
  const Step step =
      trace ? step_of_trace(files.front(), arguments) : step_of_subject(arguments, session);
  const traces::BubbleReport report = traces::explain_bubbles(step.program, step.timeline);
  if (session.json()) {
    session.print_result(step_fields(step, report));
  } else {
    print_step(step, report, session);
  }
  return kDone;
}

}  // namespace

Command analyze_command() {
  Command command;
  command.name = "analyze";
  command.summary = "say where the time of a step is lost: bubbles by cause, stragglers";
  command.description =
      "Reads a trace of Pipewright or of PyTorch (one step), or simulates a plan, an order or a "
      "schedule as simulate does. In a trace that does not show its transfers, waiting for one is "
      "counted as waiting for a transfer.";
  command.examples = {
      {"analyze examples/real.trace.json", "where did the machine lose its time?"},
      {"analyze --schedule 1f1b --pp 4 --micro-batches 8", "and where does the schedule?"},
  };
  command.positionals = {subject_file()};
  command.positionals.front().help =
      "a trace (.json or .json.gz), or what simulate reads; - is a trace on standard input";
  command.flags = subject_flags();
  command.run = run;
  return command;
}

}  // namespace pipewright::tools
