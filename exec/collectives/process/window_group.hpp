// Groups of processes on one host: they show one another their arrays through windows of memory
// that all of them map (exec/collectives/board.hpp). The memory has no name, so that nothing is
// left of it when the last process has ended, however that was. The kernel tells of ends
// (exec/transports/process/presence.hpp): a member that dies ends the others' calls.
#pragma once

#include <memory>
#include <span>

#include "exec/collectives/group.hpp"
#include "exec/transports/process/link.hpp"

namespace pipewright::exec::collectives {

/// The group of these processes of the job, by member; null where this one is not among them. Every
/// process of the job has to call it, in one order. In all of them it throws MachineError
/// if they are not on one machine or the system has no such memory, and RunError if one of them is
/// gone.
std::unique_ptr<Group> window_group(mpi::Link& link, std::span<const int> processes,
                                    const Look& look = {});

}  // namespace pipewright::exec::collectives
