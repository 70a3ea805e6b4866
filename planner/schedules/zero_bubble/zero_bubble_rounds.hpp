// The heuristic of the zero-bubble paper for one stage a rank (arXiv:2401.10241 §3.1): as many
// forwards ahead as memory and the first gradient allow, then rounds of one F and one I on each
// rank, with W wherever a wait is long enough, would be the longest one, or memory is short.
#pragma once

#include "planner/schedules/registry.hpp"

namespace pipewright::planner {

/// Where the request sets no limit, `under_way` forwards are the limit on each rank. Of the eight
/// ways to answer the heuristic's choices it keeps the one with the shortest longest span.
Order zero_bubble_rounds(const ScheduleRequest& request, int under_way);

std::optional<std::string> refuse_zero_bubble_rounds(std::string_view name,
                                                     const ScheduleRequest& request);

}  // namespace pipewright::planner
