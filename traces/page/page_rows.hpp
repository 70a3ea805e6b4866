// Which row of a page an action is, and which rows of two pages belong together. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "core/timeline/timeline.hpp"

namespace pipewright::traces {

/// What a page draws as an action: computations and their parts, updates.
bool is_drawn_action(const Instruction& in);

/// Those of a rank that ended, by start: the page's rows, rank after rank.
std::vector<InstructionId> drawn_actions(const Program& program, const Timeline& timeline,
                                         RankId rank);

/// By row of the first: 1 + the row of the second that shows the same action of the same rank, of
/// several the k-th with the k-th in program order; 0: there is none.
std::vector<std::int64_t> matched_rows(const Program& program, const Timeline& timeline,
                                       const Program& other, const Timeline& other_timeline);

}  // namespace pipewright::traces
