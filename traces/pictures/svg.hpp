// A timeline as a self-contained SVG picture. Pure function; any thread may call it.
#pragma once

#include <string>

#include "traces/analysis/trace_timeline.hpp"

namespace pipewright::traces {

struct SvgOptions {
  std::string title;
  int width = 1000;  // pixels, at least 300 are used
};

/// A row a rank; each action with its micro-batch where there is room and its name and duration on
/// hover; later stages of a rank lighter; bubbles hatched; busy share and peak at the right; a
/// legend below. Same input, same bytes.
std::string svg_timeline(const TraceTimeline& trace, const SvgOptions& options = {});

}  // namespace pipewright::traces
