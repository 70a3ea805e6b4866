// The timeline in the terminal.
#pragma once

#include <string>

#include "core/timeline.hpp"
#include "tools/terminal.hpp"
#include "traces/trace_timeline.hpp"

namespace pipewright::tools {

std::string timeline_text(const Program& program, const Timeline& timeline, int width,
                          const Terminal& terminal);
std::string timeline_text(const traces::TraceTimeline& trace, int width, const Terminal& terminal);

}  // namespace pipewright::tools
