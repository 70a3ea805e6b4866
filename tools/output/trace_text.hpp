// What was done to traces of another tool before they were analysed: a step chosen, waiting taken
// out of slices, clocks set right. As text, as JSON and as a page's tables.
#pragma once

#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "tools/cli/terminal.hpp"
#include "tools/input/trace_files.hpp"
#include "traces/page/page.hpp"

namespace pipewright::tools {

/// Which of several steps it is, what counts as waiting, and how the clocks stand. "" for a trace
/// of Pipewright.
std::vector<std::string> trace_sentences(const ChosenStep& chosen);
std::string trace_text(const ChosenStep& chosen, const Terminal& terminal);

/// `ranks[].waited_ns` and `waiting_rule` (not for a trace of Pipewright); of several ranks
/// `clocks` and `messages`; of several steps `step` and `steps`. `fields` has an entry of `ranks`
/// for each rank.
void add_trace_fields(const ChosenStep& chosen, Json& fields);

/// Waiting that was taken out of slices, by rank; of several ranks their clocks and the messages
/// that these were set right by; of several steps their times. None of a trace of Pipewright that
/// holds one step.
std::vector<traces::PageTable> trace_tables(const ChosenStep& chosen);

}  // namespace pipewright::tools
