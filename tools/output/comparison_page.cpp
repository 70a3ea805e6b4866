#include "tools/output/comparison_page.hpp"

#include "core/base/error.hpp"
#include "tools/cli/figures.hpp"
#include "tools/output/root_causes_text.hpp"
#include "tools/output/step_page.hpp"
#include "tools/output/trace_text.hpp"
#include "traces/page/page_rows.hpp"

namespace pipewright::tools {
namespace {

std::string duration_of_ns(std::int64_t ns) { return format_duration(Nanoseconds(ns)); }

/// Name, A, B, and B beside A.
std::vector<std::string> row_of(std::string name, const traces::ComparedTimes& times) {
  const double change =
      times.predicted_ns == 0
          ? 0
          : static_cast<double>(times.measured_ns) / static_cast<double>(times.predicted_ns) - 1;
  return {std::move(name), duration_of_ns(times.predicted_ns), duration_of_ns(times.measured_ns),
          signed_percent_text(change)};
}

/// How long all ranks together are idle for each cause.
traces::PageTable cause_table(const traces::BubbleReport& a, const traces::BubbleReport& b) {
  traces::PageTable table{"Idle time of all ranks, by cause", {"cause", "A", "B", "B to A"}, {}};
  for (int c = 0; c < traces::kBubbleCauses; ++c) {
    const auto cause = static_cast<traces::BubbleCause>(c);
    const traces::ComparedTimes times{a.total.of(cause), b.total.of(cause)};
    if (times.predicted_ns != 0 || times.measured_ns != 0)
      table.rows.push_back(row_of(std::string(traces::to_string(cause)), times));
  }
  return table;
}

std::vector<traces::PageTable> compared_tables(const traces::Comparison& comparison) {
  traces::PageTable kinds{"By kind of action", {"kind", "A", "B", "B to A", "times"}, {}};
  for (const traces::ComparedKind& kind : comparison.kinds) {
    kinds.rows.push_back(row_of(kind.kind, kind.sum));
    kinds.rows.back().push_back(std::to_string(kind.count));
  }
  traces::PageTable ranks{"Busy, by rank", {"rank", "A", "B", "B to A"}, {}};
  for (const traces::ComparedRank& rank : comparison.ranks)
    ranks.rows.push_back(row_of(std::to_string(rank.rank), rank.busy));
  return {std::move(kinds), std::move(ranks)};
}

/// The lines about one of the two, each with its letter, and the tables of a trace.
void add_side(const std::string& letter, const Step& step, traces::PageText& text) {
  text.facts.push_back(letter + ": " + step.title);
  for (const std::string& line : lines_about(step)) text.facts.push_back(letter + ", " + line);
  if (!step.read) return;
  for (traces::PageTable& table : trace_tables(*step.read)) {
    table.title = letter + ": " + table.title;
    text.tables.push_back(std::move(table));
  }
}

traces::PageData side_data(const Step& step, const traces::BubbleReport& bubbles,
                           const Step& other) {
  const traces::RootReport roots = roots_of(step, bubbles);
  return traces::page_data(step.program, step.timeline, step.costs,
                           {.bubbles = &bubbles,
                            .roots = &roots,
                            .ranks = step.ranks,
                            .times = times_of(step),
                            .other_rows = traces::matched_rows(step.program, step.timeline,
                                                               other.program, other.timeline)});
}

}  // namespace

Step step_of_trace(const traces::TraceTimeline& trace) {
  ChosenStep chosen;
  chosen.joined.trace = trace;
  chosen.files = 1;
  return traced_step(std::move(chosen));
}

traces::TraceTimeline neutral_form(const Step& step) {
  if (step.read) return step.read->joined.trace;
  traces::TraceTimeline trace = traces::trace_timeline(step.program, step.timeline);
  trace.source = step.title;
  return trace;
}

traces::Comparison compared(const traces::TraceTimeline& a, const traces::TraceTimeline& b) {
  traces::Comparison comparison = traces::compare(a, b);
  if (comparison.compared_actions == 0) {
    throw InputError(
        b.source, "",
        "has no action in common with " + a.source + "; compare two traces of the same plan");
  }
  return comparison;
}

std::string comparison_page(const Step& a, const Step& b, const traces::Comparison& comparison,
                            traces::PageNotes notes) {
  traces::PageText text;
  text.notes = std::move(notes);
  text.title = a.title + " and " + b.title;
  text.headline = "step " + duration_of_ns(comparison.step.predicted_ns) + " in A, " +
                  duration_of_ns(comparison.step.measured_ns) + " in B · bubble " +
                  percent_text(comparison.bubble.predicted) + " in A, " +
                  percent_text(comparison.bubble.measured) + " in B";
  const traces::BubbleReport bubbles_a = bubbles_of(a), bubbles_b = bubbles_of(b);
  text.tables = compared_tables(comparison);
  text.tables.push_back(cause_table(bubbles_a, bubbles_b));
  add_side("A", a, text);
  add_side("B", b, text);
  if (!comparison.worst.action.empty()) {
    text.facts.push_back("largest difference: " + comparison.worst.action + " on rank " +
                         std::to_string(comparison.worst.rank) + ", " +
                         duration_of_ns(comparison.worst.times.predicted_ns) + " in A, " +
                         duration_of_ns(comparison.worst.times.measured_ns) + " in B");
  }
  return traces::html_page(text, {side_data(a, bubbles_a, b), side_data(b, bubbles_b, a)});
}

}  // namespace pipewright::tools
