#include "tools/output/timeline_report.hpp"

#include <algorithm>

#include "sim/engine.hpp"
#include "tools/cli/figures.hpp"
#include "tools/output/verdict.hpp"
#include "traces/analysis/bubbles.hpp"
#include "traces/pictures/svg.hpp"

namespace pipewright::tools {
namespace {

std::string duration_of_ns(std::int64_t ns) { return format_duration(Nanoseconds(ns)); }

traces::ReportTable rank_table(const Subject& subject, const Figures& figures) {
  const bool memory = !subject.costs.memory.empty();
  traces::ReportTable table{"Ranks", {"rank", "busy", "bubble", "span", "live activations"}, {}};
  if (memory) table.header.emplace_back("peak memory");
  for (std::size_t r = 0; r < figures.ranks.size(); ++r) {
    const RankFigures& rank = figures.ranks[r];
    const double bubble = figures.makespan_ns > 0 ? 1 - static_cast<double>(rank.busy_ns) /
                                                            static_cast<double>(figures.makespan_ns)
                                                  : 0;
    table.rows.push_back({std::to_string(r), duration_of_ns(rank.busy_ns), percent_text(bubble),
                          duration_of_ns(rank.span_ns), std::to_string(rank.peak_activations)});
    if (memory) table.rows.back().push_back(format_bytes(Bytes(rank.peak_bytes)));
  }
  return table;
}

traces::ReportTable bubble_table(const Program& program, const Timeline& timeline) {
  const traces::BubbleReport bubbles = traces::explain_bubbles(program, timeline);
  traces::ReportTable table{"Bubbles by cause", {"cause", "all ranks"}, {}};
  for (int r = 0; r < program.ranks(); ++r) table.header.push_back("rank " + std::to_string(r));
  for (int c = 0; c < traces::kBubbleCauses; ++c) {
    const auto cause = static_cast<traces::BubbleCause>(c);
    if (bubbles.total.of(cause) == 0) continue;
    std::vector<std::string> row = {std::string(traces::to_string(cause)),
                                    duration_of_ns(bubbles.total.of(cause))};
    for (const auto& rank : bubbles.ranks) row.push_back(duration_of_ns(rank.of(cause)));
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

traces::Report report_of(const Subject& subject, const Timeline& timeline) {
  constexpr int kMostColumns = 32;  // ranks in the table of bubbles
  traces::Report report;
  report.title = subject.title;
  report.facts = {"source: " + subject.source, "costs: " + subject.costs_text,
                  "policy: " + policy_text(subject.program.policy)};
  const Program& program = subject.program;
  const bool stuck =
      std::find(timeline.end.begin(), timeline.end.end(), kNotEnded) != timeline.end.end();
  const Figures figures = figures_of(program, timeline, subject.costs);
  if (stuck) {
    report.verdict = verdict_text(program, sim::check(program, subject.costs), {}, Terminal{});
  } else {
    report.facts.push_back("step " + duration_of_ns(figures.makespan_ns) + ", bubble " +
                           percent_text(figures.bubble_ratio) + ", bubble in the longest span " +
                           percent_text(figures.span_bubble_ratio));
  }
  report.svg = traces::svg_timeline(traces::trace_timeline(program, timeline), {});
  report.tables.push_back(rank_table(subject, figures));
  if (program.ranks() <= kMostColumns) report.tables.push_back(bubble_table(program, timeline));
  return report;
}

}  // namespace pipewright::tools
