// What was done to traces of another tool before they were analysed: waiting taken out of slices,
// clocks set right. As text and as JSON.
#pragma once

#include <string>

#include "core/base/json.hpp"
#include "tools/cli/terminal.hpp"
#include "traces/chrome/join_ranks.hpp"

namespace pipewright::tools {

/// "" for a trace of Pipewright.
std::string waiting_text(const traces::JoinedTrace& joined, const Terminal& terminal);

/// `ranks[].waited_ns` and `waiting_rule` (not for a trace of Pipewright), and with several files
/// `clocks`. `fields` has an entry of `ranks` for each rank.
void add_waiting_fields(const traces::JoinedTrace& joined, Json& fields);

}  // namespace pipewright::tools
