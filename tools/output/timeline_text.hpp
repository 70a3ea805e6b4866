// The timeline in the terminal.
#pragma once

#include <string>

#include "core/timeline/timeline.hpp"
#include "tools/cli/terminal.hpp"
#include "traces/analysis/trace_timeline.hpp"

namespace pipewright::tools {

std::string timeline_text(const Program& program, const Timeline& timeline, int width,
                          const Terminal& terminal);
std::string timeline_text(const traces::TraceTimeline& trace, int width, const Terminal& terminal);

}  // namespace pipewright::tools
