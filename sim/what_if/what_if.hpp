// What would a step take if something were faster? Each answer is that of a simulation with changed
// costs, to the nanosecond (docs/metrics.md). Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/what_if/timed_program.hpp"

namespace pipewright::sim {

struct WhatIf {
  std::vector<Change> changes;
  std::optional<std::int64_t> makespan_ns;  // nullopt: with other times the Program gets stuck
  std::int64_t gain_ns = 0;  // of the step as it is; negative where it would take longer
  std::int64_t path_ns = 0;  // for how long what it changes is on the critical path
};

/// parse_changes(), and InputError too for a change that says nothing about this Program.
std::vector<Change> changes_for(const TimedProgram& program, std::string_view text,
                                const std::string& what);

/// Changes without fault.
WhatIf what_if(const TimedProgram& program, const Timeline& as_it_is, std::vector<Change> changes);

/// What is worth knowing, by gain: each kind a tenth faster; the ranks, stages, micro-batches,
/// actions and links that gain most by it, three of each; messages that take no time; stages that
/// all take the mean, and micro-batches; the rank that is furthest above the median of the others,
/// as fast as that. `as_it_is`: the simulated timeline, which has ended. Some 15 to 50 simulations.
std::vector<WhatIf> what_ifs(const TimedProgram& program, const Timeline& as_it_is);

/// what_if() of each that is asked, then, where wanted, what_ifs(). The critical path is found
/// once.
std::vector<WhatIf> answers(const TimedProgram& program, const Timeline& as_it_is,
                            std::vector<std::vector<Change>> asked, bool what_ifs_too);

}  // namespace pipewright::sim
