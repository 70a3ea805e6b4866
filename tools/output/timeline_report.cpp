#include "tools/output/timeline_report.hpp"

#include <algorithm>

#include "sim/engine.hpp"
#include "tools/output/step_page.hpp"
#include "traces/analysis/bubbles.hpp"
#include "traces/analysis/memory_profile.hpp"

namespace pipewright::tools {
namespace {

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

std::string timeline_page(const Subject& subject, const Timeline& timeline, traces::PageNotes notes,
                          std::vector<traces::PageData> others) {
  const Program& program = subject.program;
  const traces::BubbleReport bubbles = traces::explain_bubbles(program, timeline);
  const traces::RootReport roots = traces::root_causes(program, timeline, subject.costs, bubbles);
  Figures figures = figures_of(program, timeline, subject.costs);
  StepView view{.title = subject.title,
                .facts = lines_about(subject),
                .program = program,
                .timeline = timeline,
                .costs = subject.costs,
                .figures = figures,
                .bubbles = bubbles,
                .roots = roots,
                .notes = std::move(notes)};
  const bool stuck =
      std::find(timeline.end.begin(), timeline.end.end(), kNotEnded) != timeline.end.end();
  if (stuck) {
    view.stuck = sim::check(program, subject.costs);
    set_reached_peaks(subject, timeline, figures);
  }
  return step_page(view, std::move(others));
}

}  // namespace pipewright::tools
