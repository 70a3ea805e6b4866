// A timeline as text: a row a rank, time from left to right. Pure function; any thread may call it.
#pragma once

#include <string>

#include "core/program/program.hpp"
#include "core/timeline/timeline.hpp"
#include "traces/analysis/trace_timeline.hpp"

namespace pipewright::traces {

struct TerminalOptions {
  int width = 80;      // columns, at least 40 are used
  bool color = false;  // ANSI colours; the kinds can be told apart without them too
  bool ascii = false;  // no character beyond 7 bits
};

/// With room, an action is the last digit of its micro-batch and a fill that shows its kind; in a
/// column of its own F is the digit and the others a small letter; where many share a column, the
/// kind that fills most of it as a capital letter. A legend explains what occurs. Ends with a
/// newline.
std::string terminal_timeline(const TraceTimeline& trace, const TerminalOptions& options = {});

/// The same of a step that has ended, its first `most_ranks` ranks, without making a trace of it:
/// O(ranks) memory.
std::string terminal_timeline(const Program& program, const Timeline& timeline, int most_ranks,
                              const TerminalOptions& options = {});

}  // namespace pipewright::traces
