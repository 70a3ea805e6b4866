#include "tools/output/what_if_text.hpp"

#include "tools/cli/figures.hpp"
#include "tools/cli/table.hpp"
#include "tools/input/trace_program.hpp"

namespace pipewright::tools {
namespace {

constexpr std::size_t kAMoment = 200'000;  // instructions: some tens of simulations in a second
constexpr const char* kSuppose = "--suppose";

std::string duration_text(std::int64_t ns) {
  return ns < 0 ? "-" + format_duration(Nanoseconds(-ns)) : format_duration(Nanoseconds(ns));
}

/// Step, gain, its share and the time on the critical path.
std::vector<std::string> table_row(const sim::WhatIf& row, std::int64_t makespan_ns) {
  std::vector<std::string> cells = {sim::in_words(row.changes)};
  if (row.makespan_ns) {
    const double share =
        makespan_ns > 0 ? static_cast<double>(row.gain_ns) / static_cast<double>(makespan_ns) : 0;
    cells.insert(cells.end(), {duration_text(*row.makespan_ns), duration_text(row.gain_ns),
                               percent_text(share)});
  } else {
    cells.insert(cells.end(), {"gets stuck", "-", "-"});
  }
  cells.push_back(duration_text(row.path_ns));
  return cells;
}

std::string replay_text(const WhatIfs& what_ifs) {
  if (!what_ifs.replayed) return "";
  return "a simulation of the trace's order with its costs, " +
         duration_text(what_ifs.makespan_ns) + ", " + percent_text(what_ifs.replay_error) +
         " from the trace";
}

}  // namespace

std::vector<Flag> what_if_flags() {
  return {{.group = "Output",
           .name = "--what-if",
           .help = "what the step would take if a kind of action, a rank, a link, … were 10 % "
                   "faster, messages free, stages balanced: simulated, by gain"},
          {.group = "Output",
           .name = kSuppose,
           .argument = "CHANGE",
           .help = "the same for changes of your own: rank:3=0.9, link:0-1=0, F=0.5,B=0.5 "
                   "(docs/metrics.md)",
           .repeatable = true}};
}

bool asks_what_if(const Arguments& arguments) {
  return arguments.has("--what-if") || arguments.has(kSuppose);
}

WhatIfs what_ifs_of(const Program& program, const CostTable& costs, const Timeline& timeline,
                    const Arguments& arguments) {
  WhatIfs what_ifs{.makespan_ns = timeline.makespan_ns};
  if (!asks_what_if(arguments) && program.code.size() > kAMoment) return what_ifs;
  const sim::TimedProgram timed(program, costs);
  std::vector<std::vector<sim::Change>> asked;
  for (const std::string& text : arguments.all(kSuppose))
    asked.push_back(sim::changes_for(timed, text, kSuppose));
  what_ifs.rows = sim::answers(timed, timeline, std::move(asked),
                               arguments.has("--what-if") || !asks_what_if(arguments));
  return what_ifs;
}

WhatIfs what_ifs_of(const Step& step, const Arguments& arguments,
                    const std::optional<TracedReplay>& known) {
  if (!step.read) return what_ifs_of(step.program, step.costs, step.timeline, arguments);
  const traces::TraceTimeline& trace = step.read->joined.trace;
  if (!asks_what_if(arguments) && !why_no_order(trace).empty()) return {};
  std::optional<TracedReplay> own;
  if (!known) own = replay_of(step, order_of_trace(trace, "a what-if"));
  const TracedReplay& replay = known ? *known : *own;
  WhatIfs what_ifs = what_ifs_of(replay.program, replay.table, replay.timeline, arguments);
  what_ifs.replayed = true;
  what_ifs.replay_error = replay_error(replay, step);
  return what_ifs;
}

std::string what_if_text(const WhatIfs& what_ifs, const Terminal& terminal) {
  using Align = Table::Align;
  Table table({{"what if"},
               {"step", Align::Right},
               {"gain", Align::Right},
               {"share", Align::Right},
               {"on the critical path", Align::Right}});
  for (const sim::WhatIf& row : what_ifs.rows) table.add(table_row(row, what_ifs.makespan_ns));
  std::string head = "what if, simulated (docs/metrics.md)";
  if (what_ifs.replayed) head += "; as it is: " + replay_text(what_ifs);
  return wrapped(head + ":", terminal.width, 0) + table.text(terminal);
}

Json what_if_fields(const WhatIfs& what_ifs) {
  Json rows = Json::array();
  for (const sim::WhatIf& row : what_ifs.rows) {
    rows.push_back({{"change", to_string(row.changes)},
                    {"text", in_words(row.changes)},
                    {"makespan_ns", row.makespan_ns ? Json(*row.makespan_ns) : Json()},
                    {"gain_ns", row.gain_ns},
                    {"path_ns", row.path_ns}});
  }
  return rows;
}

void add_what_if_table(const WhatIfs& what_ifs, traces::PageNotes& notes) {
  if (what_ifs.rows.empty()) return;
  const std::string of = what_ifs.replayed ? " (of " + replay_text(what_ifs) + ")" : "";
  traces::PageTable table{
      "What if" + of, {"change", "step", "gain", "share", "on the critical path"}, {}};
  for (const sim::WhatIf& row : what_ifs.rows)
    table.rows.push_back(table_row(row, what_ifs.makespan_ns));
  notes.tables.push_back(std::move(table));
}

}  // namespace pipewright::tools
