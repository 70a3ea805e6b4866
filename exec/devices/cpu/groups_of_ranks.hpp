// The groups that ranks form which divide layers among them, each along its axis.
#pragma once

#include <vector>

#include "core/model/tensor_split.hpp"
#include "core/program/program.hpp"
#include "exec/devices/cpu/device.hpp"
#include "exec/devices/cpu/strands.hpp"
#include "exec/runtime/transport.hpp"

namespace pipewright::exec::cpu {

/// By rank of the Program: its places in them, where it is a rank of this process. `division`:
/// division_of() the training. `group_of` is needed where ranks are processes.
std::vector<GroupsOfRank> groups_of_ranks(const Program& program, const StageDivision& division,
                                          Transport& transport,
                                          const GroupOfProcesses& group_of = {});

}  // namespace pipewright::exec::cpu
