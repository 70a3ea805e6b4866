#include "tools/output/step_page.hpp"

#include <algorithm>
#include <map>

#include "tools/cli/figures.hpp"
#include "tools/output/root_causes_text.hpp"
#include "tools/output/trace_text.hpp"
#include "tools/output/verdict.hpp"
#include "traces/analysis/critical_path.hpp"
#include "traces/analysis/trace_timeline.hpp"

namespace pipewright::tools {
namespace {

std::string length_text(std::int64_t ns) { return format_duration(Nanoseconds(ns)); }

std::string row_text(const StepView& view, std::size_t row) {
  return std::to_string(view.ranks.empty() ? static_cast<int>(row) : view.ranks[row]);
}

traces::PageTable rank_table(const StepView& view) {
  const bool memory = !view.costs.memory.empty();
  const Figures& figures = view.figures;
  traces::PageTable table{"Ranks", {"rank", "busy", "bubble", "span", "live activations"}, {}};
  if (memory) table.header.emplace_back("peak memory");
  for (std::size_t r = 0; r < figures.ranks.size(); ++r) {
    const RankFigures& rank = figures.ranks[r];
    const double bubble = figures.makespan_ns > 0 ? 1 - static_cast<double>(rank.busy_ns) /
                                                            static_cast<double>(figures.makespan_ns)
                                                  : 0;
    table.rows.push_back({row_text(view, r), length_text(rank.busy_ns), percent_text(bubble),
                          length_text(rank.span_ns), std::to_string(rank.peak_activations)});
    if (memory) table.rows.back().push_back(format_bytes(Bytes(rank.peak_bytes)));
  }
  return table;
}

traces::PageTable bubble_table(const StepView& view) {
  const traces::BubbleReport& bubbles = view.bubbles;
  traces::PageTable table{"Bubbles by cause", {"cause", "all ranks"}, {}};
  for (std::size_t r = 0; r < bubbles.ranks.size(); ++r)
    table.header.push_back("rank " + row_text(view, r));
  for (int c = 0; c < traces::kBubbleCauses; ++c) {
    const auto cause = static_cast<traces::BubbleCause>(c);
    if (bubbles.total.of(cause) == 0) continue;
    std::vector<std::string> row = {std::string(traces::to_string(cause)),
                                    length_text(bubbles.total.of(cause))};
    for (const auto& rank : bubbles.ranks) row.push_back(length_text(rank.of(cause)));
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
traces::PageTable path_table(const StepView& view) {
  traces::PageTable table{"Critical path", {"what", "time", "share", "times"}, {}};
  std::map<std::string, std::pair<std::int64_t, int>> sums;
  for (const traces::PathStep& step :
       traces::critical_path(view.program, view.timeline, view.times)) {
    const bool computes = step.kind == traces::PathKind::Compute;
    auto& [ns, times] = sums[computes ? kind_text(view.program, step.instruction)
                                      : std::string(traces::to_string(step.kind))];
    ns += step.end_ns - step.start_ns;
    ++times;
  }
  std::vector<std::pair<std::string, std::pair<std::int64_t, int>>> rows(sums.begin(), sums.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second.first > b.second.first; });
  for (const auto& [what, sum] : rows) {
    const double share = static_cast<double>(sum.first) /
                         static_cast<double>(std::max<std::int64_t>(1, view.timeline.makespan_ns));
    table.rows.push_back(
        {what, length_text(sum.first), percent_text(share), std::to_string(sum.second)});
  }
  return table;
}

std::vector<traces::PageTable> step_tables(const StepView& view) {
  constexpr int kMostColumns = 32;  // ranks in the table of bubbles
  std::vector<traces::PageTable> tables = {rank_table(view)};
  if (view.program.ranks() <= kMostColumns) tables.push_back(bubble_table(view));
  tables.push_back(roots_table(view.program, view.ranks, view.roots));
  tables.push_back(path_table(view));
  tables.insert(tables.end(), view.tables.begin(), view.tables.end());
  return tables;
}

traces::PageData step_data(const StepView& view) {
  return traces::page_data(view.program, view.timeline, view.costs,
                           {.stuck = view.stuck ? &*view.stuck : nullptr,
                            .bubbles = &view.bubbles,
                            .roots = &view.roots,
                            .ranks = view.ranks,
                            .times = view.times});
}

}  // namespace

std::string step_headline(const Figures& figures) {
  return "step " + length_text(figures.makespan_ns) + " · bubble " +
         percent_text(figures.bubble_ratio) + " · bubble in the longest span " +
         percent_text(figures.span_bubble_ratio);
}

std::string step_page(const StepView& view, std::vector<traces::PageData> others) {
  traces::PageText text;
  text.title = view.title;
  text.facts = view.facts;
  text.notes = view.notes;
  if (view.stuck) {
    text.verdict = verdict_text(view.program, *view.stuck, {}, Terminal{});
  } else {
    text.headline = step_headline(view.figures);
  }
  text.tables = step_tables(view);
  text.one_of_them = !others.empty();
  others.insert(others.begin(), step_data(view));
  return traces::html_page(text, others);
}

std::vector<std::string> lines_about(const Step& step) {
  std::vector<std::string> lines = step.facts;
  if (step.read) {
    for (std::string& sentence : trace_sentences(*step.read)) lines.push_back(std::move(sentence));
  }
  if (std::string text = straggler_text(step); !text.empty()) lines.push_back(std::move(text));
  return lines;
}

std::string step_page(const Step& step, const traces::BubbleReport& bubbles,
                      const traces::RootReport& roots, traces::PageNotes notes) {
  StepView view{.title = step.title,
                .facts = lines_about(step),
                .program = step.program,
                .timeline = step.timeline,
                .costs = step.costs,
                .figures = step.figures,
                .bubbles = bubbles,
                .roots = roots,
                .ranks = step.ranks,
                .times = times_of(step),
                .notes = std::move(notes)};
  if (step.read) view.tables = trace_tables(*step.read);
  return step_page(view);
}

}  // namespace pipewright::tools
