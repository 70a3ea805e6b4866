#include "tools/output/comparison_page.hpp"

#include "core/costs/costs.hpp"
#include "tools/cli/figures.hpp"
#include "tools/input/trace_program.hpp"
#include "traces/page/page.hpp"
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

}  // namespace

std::string comparison_page(const traces::TraceTimeline& predicted,
                            const traces::TraceTimeline& measured,
                            const traces::Comparison& comparison) {
  const TraceProgram a = program_of_trace(predicted), b = program_of_trace(measured);
  traces::PageText text;
  text.title = predicted.source + " and " + measured.source;
  text.headline = "step " + duration_of_ns(comparison.step.predicted_ns) + " in A, " +
                  duration_of_ns(comparison.step.measured_ns) + " in B · bubble " +
                  percent_text(comparison.bubble.predicted) + " in A, " +
                  percent_text(comparison.bubble.measured) + " in B";
  text.facts = {"A: " + predicted.source, "B: " + measured.source};
  if (!comparison.worst.action.empty()) {
    text.facts.push_back("largest difference: " + comparison.worst.action + " on rank " +
                         std::to_string(comparison.worst.rank) + ", " +
                         duration_of_ns(comparison.worst.times.predicted_ns) + " in A, " +
                         duration_of_ns(comparison.worst.times.measured_ns) + " in B");
  }
  traces::PageTable kinds{"By kind of action", {"kind", "A", "B", "B to A", "times"}, {}};
  for (const traces::ComparedKind& kind : comparison.kinds) {
    kinds.rows.push_back(row_of(kind.kind, kind.sum));
    kinds.rows.back().push_back(std::to_string(kind.count));
  }
  traces::PageTable ranks{"Busy, by rank", {"rank", "A", "B", "B to A"}, {}};
  for (const traces::ComparedRank& rank : comparison.ranks)
    ranks.rows.push_back(row_of(std::to_string(rank.rank), rank.busy));
  text.tables = {std::move(kinds), std::move(ranks)};
  const CostTable none;
  return traces::html_page(
      text,
      {traces::page_data(a.program, a.timeline, none, nullptr,
                         traces::matched_rows(a.program, a.timeline, b.program, b.timeline)),
       traces::page_data(b.program, b.timeline, none, nullptr,
                         traces::matched_rows(b.program, b.timeline, a.program, a.timeline))});
}

}  // namespace pipewright::tools
