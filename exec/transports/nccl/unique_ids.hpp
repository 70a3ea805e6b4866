// Unique ids of NCCL's communicators: the process that has a communicator's first member makes its
// id, and all processes learn all of them.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "exec/base/packing.hpp"
#include "exec/transports/nccl/communicators.hpp"
#include "exec/transports/nccl/module_api.h"

namespace pipewright::exec::nccl {

using UniqueId = std::array<char, PIPEWRIGHT_NCCL_ID_BYTES>;

/// By communicator of the plan. `process_of` says where a rank lives; `make` makes a fresh id;
/// `share` gives what each process brings to all of them, by process
/// (exec/transports/process/tcp/rendezvous.hpp, or exec/runtime/peers.hpp under mpirun). Throws
/// RunError if a process has brought something else.
std::vector<UniqueId> unique_ids(const CommunicatorPlan& plan, int process,
                                 const std::function<int(RankId)>& process_of,
                                 const std::function<UniqueId()>& make,
                                 const std::function<std::vector<PackedBytes>(PackedBytes)>& share);

}  // namespace pipewright::exec::nccl
