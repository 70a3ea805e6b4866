// What was done to traces of another tool before they were analysed: a step chosen, waiting taken
// out of slices, clocks set right. As text and as JSON.
#pragma once

#include <string>

#include "core/base/json.hpp"
#include "tools/cli/terminal.hpp"
#include "tools/input/trace_files.hpp"

namespace pipewright::tools {

/// Which of several steps it is, what counts as waiting, and how the clocks stand. "" for a trace
/// of Pipewright.
std::string trace_text(const ChosenStep& chosen, const Terminal& terminal);

/// `ranks[].waited_ns` and `waiting_rule` (not for a trace of Pipewright); of several ranks
/// `clocks` and `messages`; of several steps `step` and `steps`. `fields` has an entry of `ranks`
/// for each rank.
void add_trace_fields(const ChosenStep& chosen, Json& fields);

}  // namespace pipewright::tools
