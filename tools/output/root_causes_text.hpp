// What the idle time of a step comes from in the end (docs/metrics.md), as JSON, for the terminal
// and as a table of a page.
#pragma once

#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "tools/cli/terminal.hpp"
#include "tools/input/step.hpp"
#include "traces/analysis/root_causes.hpp"
#include "traces/page/page.hpp"

namespace pipewright::tools {

/// Of a trace with what it shows in gaps that messages do not explain.
traces::RootReport roots_of(const Step& step, const traces::BubbleReport& bubbles);

/// Adds "roots", to each of "ranks" too, "held_up_by" and "late_members". `ranks`: the numbers of
/// the rows; empty: 0, 1, ….
void add_root_fields(const Program& program, const std::vector<int>& ranks,
                     const traces::RootReport& report, Json& fields);
/// "" where no rank is idle.
std::string roots_text(const Step& step, const traces::RootReport& report,
                       const Terminal& terminal);
traces::PageTable roots_table(const Program& program, const std::vector<int>& ranks,
                              const traces::RootReport& report);

}  // namespace pipewright::tools
