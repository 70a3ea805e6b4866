#include "tools/output/timeline_report.hpp"

#include <algorithm>
#include <map>

#include "sim/engine.hpp"
#include "tools/cli/figures.hpp"
#include "tools/output/verdict.hpp"
#include "traces/analysis/bubbles.hpp"
#include "traces/analysis/critical_path.hpp"
#include "traces/analysis/memory_profile.hpp"
#include "traces/analysis/trace_timeline.hpp"
#include "traces/page/page.hpp"

namespace pipewright::tools {
namespace {

std::string duration_of_ns(std::int64_t ns) { return format_duration(Nanoseconds(ns)); }

traces::PageTable rank_table(const Subject& subject, const Figures& figures) {
  const bool memory = !subject.costs.memory.empty();
  traces::PageTable table{"Ranks", {"rank", "busy", "bubble", "span", "live activations"}, {}};
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

traces::PageTable bubble_table(const Program& program, const Timeline& timeline) {
  const traces::BubbleReport bubbles = traces::explain_bubbles(program, timeline);
  traces::PageTable table{"Bubbles by cause", {"cause", "all ranks"}, {}};
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

/// "F", "OPT"; of a pair and a part that of their action.
std::string kind_text(const Program& program, InstructionId id) {
  const Cell cell = traces::drawn_cell(program, id);
  return cell.partner ? "pair" : std::string(to_string(cell.action.kind));
}

/// How long the critical path is in each kind of action, in messages and in what nothing explains.
traces::PageTable path_table(const Program& program, const Timeline& timeline) {
  traces::PageTable table{"Critical path", {"what", "time", "share", "times"}, {}};
  std::map<std::string, std::pair<std::int64_t, int>> sums;
  for (const traces::PathStep& step : traces::critical_path(program, timeline)) {
    const bool computes = step.kind == traces::PathKind::Compute;
    auto& [ns, times] = sums[computes ? kind_text(program, step.instruction)
                                      : std::string(traces::to_string(step.kind))];
    ns += step.end_ns - step.start_ns;
    ++times;
  }
  std::vector<std::pair<std::string, std::pair<std::int64_t, int>>> rows(sums.begin(), sums.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second.first > b.second.first; });
  for (const auto& [what, sum] : rows) {
    const double share = static_cast<double>(sum.first) /
                         static_cast<double>(std::max<std::int64_t>(1, timeline.makespan_ns));
    table.rows.push_back(
        {what, duration_of_ns(sum.first), percent_text(share), std::to_string(sum.second)});
  }
  return table;
}

/// A step that got stuck did not reach the peaks of the whole one.
void set_reached_peaks(const Subject& subject, const Timeline& timeline, Figures& figures) {
  const auto profiles = traces::memory_profiles(subject.program, timeline, subject.costs);
  for (std::size_t r = 0; r < profiles.size(); ++r) {
    figures.ranks[r].peak_bytes = profiles[r].peak.bytes;
    figures.ranks[r].peak_activations = 0;
    for (const traces::HeldStep& step : profiles[r].steps)
      figures.ranks[r].peak_activations =
          std::max(figures.ranks[r].peak_activations, step.activations);
  }
}

}  // namespace

std::string timeline_page(const Subject& subject, const Timeline& timeline,
                          std::vector<traces::PageTable> first) {
  constexpr int kMostColumns = 32;  // ranks in the table of bubbles
  const Program& program = subject.program;
  traces::PageText text;
  text.tables = std::move(first);
  text.title = subject.title;
  text.facts = {"source: " + subject.source, "costs: " + subject.costs_text,
                "policy: " + policy_text(program.policy)};
  const bool stuck =
      std::find(timeline.end.begin(), timeline.end.end(), kNotEnded) != timeline.end.end();
  Figures figures = figures_of(program, timeline, subject.costs);
  WaitReport report;
  if (stuck) {
    report = sim::check(program, subject.costs);
    text.verdict = verdict_text(program, report, {}, Terminal{});
    set_reached_peaks(subject, timeline, figures);
  } else {
    text.headline = "step " + duration_of_ns(figures.makespan_ns) + " · bubble " +
                    percent_text(figures.bubble_ratio) + " · bubble in the longest span " +
                    percent_text(figures.span_bubble_ratio);
  }
  text.tables.push_back(rank_table(subject, figures));
  if (program.ranks() <= kMostColumns) text.tables.push_back(bubble_table(program, timeline));
  text.tables.push_back(path_table(program, timeline));
  return traces::html_page(
      text, {traces::page_data(program, timeline, subject.costs, stuck ? &report : nullptr)});
}

}  // namespace pipewright::tools
