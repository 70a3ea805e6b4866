// The page about one step, simulated, run or traced: its timeline, and tables that say the same in
// numbers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/program/wait_for.hpp"
#include "core/timeline/timeline.hpp"
#include "tools/input/step.hpp"
#include "traces/analysis/bubbles.hpp"
#include "traces/analysis/critical_path.hpp"
#include "traces/analysis/root_causes.hpp"
#include "traces/page/page.hpp"

namespace pipewright::tools {

/// Refers to what it shows; that has to live as long.
struct StepView {
  std::string title;
  std::vector<std::string> facts;  // a line each
  const Program& program;
  const Timeline& timeline;
  const CostTable& costs;
  const Figures& figures;
  const traces::BubbleReport& bubbles;
  const traces::RootReport& roots;
  std::vector<int> ranks;  // numbers of the rows; empty: 0, 1, …
  traces::Times times = traces::Times::Simulated;
  std::optional<WaitReport> stuck;        // of a step that got stuck
  traces::PageNotes notes;                // stand before its own tables
  std::vector<traces::PageTable> tables;  // stand after them
};

/// `others`: timelines that the notes' tables offer instead of its own, numbered from 1.
std::string step_page(const StepView& view, std::vector<traces::PageData> others = {});
/// What it says first.
std::string step_headline(const Figures& figures);

/// Of a trace with what was done to it: waiting taken out of slices, clocks set right.
std::string step_page(const Step& step, const traces::BubbleReport& bubbles,
                      const traces::RootReport& roots, traces::PageNotes notes = {});
std::vector<std::string> lines_about(const Step& step);

}  // namespace pipewright::tools
