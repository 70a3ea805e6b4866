// --what-if and --suppose: what a step would take if something were faster, as text, as JSON and as
// a page's table.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "core/timeline/timeline.hpp"
#include "sim/what_if/what_if.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/command.hpp"
#include "tools/cli/terminal.hpp"
#include "tools/input/step.hpp"
#include "tools/input/traced_replay.hpp"
#include "traces/page/page.hpp"

namespace pipewright::tools {

struct WhatIfs {
  std::int64_t makespan_ns = 0;  // of the step as it is
  std::vector<sim::WhatIf> rows;
  double replay_error = 0;  // of a trace: |replay - trace| / trace
  bool replayed = false;
};

std::vector<Flag> what_if_flags();
bool asks_what_if(const Arguments& arguments);

/// Of a simulated timeline that has ended: those of --suppose in their order, then those of
/// --what-if. With neither flag what a page shows: the latter, where they take no longer than a
/// moment. Throws InputError for a change that is none, or says nothing about the Program.
WhatIfs what_ifs_of(const Program& program, const CostTable& costs, const Timeline& timeline,
                    const Arguments& arguments);
/// Of a trace those of a replay of its order with its costs: `known`, where the caller has it.
/// Where the flags do not ask and the trace has no whole order: none. Throws as order_of_trace(),
/// too.
WhatIfs what_ifs_of(const Step& step, const Arguments& arguments,
                    const std::optional<TracedReplay>& known = std::nullopt);

std::string what_if_text(const WhatIfs& what_ifs, const Terminal& terminal);
/// "what_if".
Json what_if_fields(const WhatIfs& what_ifs);
/// Into the tables, if there is any row.
void add_what_if_table(const WhatIfs& what_ifs, traces::PageNotes& notes);

}  // namespace pipewright::tools
