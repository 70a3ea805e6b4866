// pipewright analyze: where the time of a step is lost.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "core/base/error.hpp"
#include "sim/engine.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/figures.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"
#include "tools/input/subject.hpp"
#include "tools/input/trace_program.hpp"
#include "tools/output/timeline_text.hpp"
#include "tools/output/waiting_text.hpp"
#include "traces/analysis/bubbles.hpp"
#include "traces/analysis/overhead_causes.hpp"
#include "traces/chrome/join_ranks.hpp"
#include "traces/chrome/read_trace.hpp"
#include "traces/chrome/unpacked_stream.hpp"

namespace pipewright::tools {
namespace {

/// What is analysed, wherever it comes from.
struct Step {
  std::string title;
  Program program;
  Timeline timeline;
  Figures figures;
  std::vector<int> ranks;                   // numbers of the rows
  std::optional<traces::JoinedTrace> read;  // of a trace
};

bool is_folder(const std::string& path) {
  std::error_code unknown;
  return std::filesystem::is_directory(path, unknown);
}

/// What the text of a file looks like, read until that is clear and no more than a piece at a time.
struct Looks {
  bool has_events = false;  // "traceEvents", or a bare list
  bool has_schema = false;
};

Looks looks_of(const std::string& path) {
  constexpr std::size_t kPiece = 1 << 16, kLongestWord = 16;
  traces::UnpackedStream stream(path, traces::kMostTraceBytes);
  Looks looks;
  std::string text, piece(kPiece, '\0');
  bool has_begun = false;
  while (!looks.has_events) {
    const auto taken = stream.sgetn(piece.data(), static_cast<std::streamsize>(piece.size()));
    if (taken <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(taken));
    const auto first = text.find_first_not_of(" \t\r\n");
    if (!has_begun && first != text.npos) {
      has_begun = true;
      looks.has_events = text[first] == '[';
    }
    looks.has_events |= text.find("\"traceEvents\"") != text.npos;
    looks.has_schema |= text.find("\"schema\"") != text.npos;
    text.erase(0, text.size() - std::min(text.size(), kLongestWord));
  }
  return looks;
}

/// Traces have "traceEvents" or are a bare list of them; plans and jobs have "schema".
bool is_trace(const std::string& path) {
  if (path == "-" || path.ends_with(".gz")) return true;
  if (is_folder(path)) return true;
  if (!path.ends_with(".json")) return false;
  const Looks looks = looks_of(path);
  return looks.has_events || (!looks.has_schema && path.find("trace") != path.npos);
}

/// The traces of a folder, by name; anything else as it is.
std::vector<std::string> files_of(const std::string& path) {
  if (!is_folder(path)) return {path};
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    const std::string file = entry.path().string();
    if (!entry.is_regular_file()) continue;
    if (file.ends_with(".json.gz") || (file.ends_with(".json") && looks_of(file).has_events)) {
      files.push_back(file);
    }
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) throw InputError(path, "", "has no trace in it, neither .json nor .json.gz");
  return files;
}

void refuse_stuck(const traces::TraceTimeline& trace) {
  for (const auto& rank : trace.ranks) {
    for (const auto& span : rank.spans) {
      if (span.kind == traces::SpanKind::Stuck) {
        throw InputError(trace.source, "rank " + std::to_string(rank.rank),
                         "the trace is of a run that got stuck at " + to_string(span.cell) +
                             "; use pipewright check on its order");
      }
    }
  }
}

Step step_of_traces(const std::vector<std::string>& paths) {
  std::vector<traces::TraceTimeline> files;
  for (const std::string& path : paths) {
    for (const std::string& file : files_of(path)) {
      files.push_back(traces::read_trace(file));
      refuse_stuck(files.back());
    }
  }
  const std::string others =
      files.size() > 1 ? " and " + std::to_string(files.size() - 1) + " more" : "";
  traces::JoinedTrace joined = traces::join_ranks(std::move(files));
  TraceProgram read = program_of_trace(joined.trace);
  Step step{.title = joined.trace.source + others,
            .program = std::move(read.program),
            .timeline = std::move(read.timeline)};
  step.figures = figures_of(step.program, step.timeline, CostTable{});
  for (const auto& rank : joined.trace.ranks) step.ranks.push_back(rank.rank);
  step.read = std::move(joined);
  return step;
}

traces::BubbleReport bubbles_of(const Step& step) {
  traces::BubbleReport report = traces::explain_bubbles(step.program, step.timeline);
  if (step.read) traces::explain_overhead(step.read->trace, report);
  return report;
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
                     "gets stuck under policy " + policy_text(subject.program.policy) +
                         "; see pipewright check");
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
  if (step.read) add_waiting_fields(*step.read, fields);
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
  traces::TraceTimeline drawn = traces::trace_timeline(step.program, step.timeline);
  for (std::size_t r = 0; r < step.ranks.size(); ++r) drawn.ranks[r].rank = step.ranks[r];
  session.print(timeline_text(drawn, terminal.width, terminal));
  session.print("shares of the step, by cause (docs/metrics.md):\n");
  session.print(table_text(step, report, terminal));
  const Straggler straggler = straggler_of(step.figures);
  if (straggler.above_mean > 0.01) {
    session.print(wrapped("rank " + std::to_string(step.ranks[straggler.row]) +
                              " computes longest: " + percent_text(straggler.above_mean) +
                              " more than the mean; move work away from it",
                          terminal.width, 0));
  }
  if (step.read) session.print(waiting_text(*step.read, terminal));
}

int run_analyze(const Arguments& arguments, Session& session) {
  const auto& files = arguments.positionals();
  const bool trace = !files.empty() && !arguments.has("--schedule") && is_trace(files.front());
  if (!trace && files.size() > 1) {
    throw InputError(files[1], "",
                     "is one file too many: only traces may be several files, one for each rank");
  }
  if (trace) {
    refuse_flags(arguments, subject_flags(),
                 "belongs to what is simulated; a trace brings its own times");
  }
  const Step step = trace ? step_of_traces(files) : step_of_subject(arguments, session);
  const traces::BubbleReport report = bubbles_of(step);
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
      "Reads a trace of Pipewright, or those of PyTorch's ranks (one step; a file each, or their "
      "folder), or simulates a plan, an order or a schedule as simulate does. PyTorch waits for an "
      "input inside the slice that needs it: this wait is taken out of the slice, and the output "
      "says by which rule. Where the ranks' clocks would let a message end before it began, they "
      "are corrected from the messages. In a trace that does not show its transfers, waiting for "
      "one is counted as waiting for a transfer.";
  command.examples = {
      {"analyze examples/real.trace.json", "where did the machine lose its time?"},
      {"analyze --schedule 1f1b --pp 4 --micro-batches 8", "and where does the schedule?"},
  };
  command.positionals = {subject_file()};
  command.positionals.front().help =
      "traces (.json or .json.gz, or a folder of them), or what simulate reads; - is a trace on "
      "standard input";
  command.positionals.front().most = kAnyNumber;
  command.flags = subject_flags();
  command.run = run_analyze;
  return command;
}

}  // namespace pipewright::tools
