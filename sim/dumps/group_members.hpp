// Who is in a group of which dumps do not say it. Part of join_dumps().
#pragma once

#include <cstdint>
#include <vector>

#include "sim/dumps/dumped_job.hpp"

namespace pipewright::sim {

/// The parts of which the call makes a whole, one of each member: what an all-gather brings out
/// over what goes in. 0: its sizes do not say it.
std::int64_t parts_in(const RecordedCall& call);

/// Fills in the ranks of all groups, of dumps of all ranks: as `named`, as another member's dump,
/// all ranks where it is the group of all; else whoever has called it. Where these all wait in one
/// and the same call it is somebody else that they wait for, and all ranks are taken to be members,
/// unless a gathering has as many parts as there are callers.
void find_members(std::vector<Dump>& dumps, const NamedRanks& named);

}  // namespace pipewright::sim
