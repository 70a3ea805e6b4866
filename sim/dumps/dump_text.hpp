// Ranks, groups and calls of a dump in words.
#pragma once

#include <string>
#include <vector>

#include "sim/dumps/dump.hpp"

namespace pipewright::sim {

/// "rank 1", "ranks 0, 2 and 3".
std::string ranks_text(const std::vector<RankId>& ranks);
/// "group 0 (default_pg)".
std::string group_text(const RecordedGroup& group);
/// "[8] float32", or "[2, 4] -> [8] float32" where sizes change.
std::string tensors_text(const RecordedCall& call);
/// "all_reduce 3 of group 0 (default_pg)", "send to rank 2 in group 1 (pp)".
std::string call_name(const RecordedCall& call, const RecordedGroup& group);
/// The same with tensors, state and place: "…, [8] float32, started, at train.py:31 (main)".
std::string call_text(const RecordedCall& call, const RecordedGroup& group);

}  // namespace pipewright::sim
