// The table of exec/transports/nccl/module_api.h on the host's table (tests/support/host_cuda.hpp):
// sends copy ahead, as NCCL may, and a communicator stays in progress until its receives have met
// their sends, so the host that polls it waits. So it serves Programs whose receives stand just
// before what needs them. An all-reduce adds floats in the order of members, and stays in progress
// until all members have called it: the k-th calls on a communicator belong together. Other
// collectives are refused. Any thread may call.
#pragma once

#include "exec/devices/cuda/module_api.h"
#include "exec/transports/nccl/module_api.h"

namespace pipewright::tests {

/// The GPUs' memory is that of `cuda`, which is taken from here on.
const pipewright_nccl& host_nccl(const pipewright_cuda& cuda);

/// Calls of send() and receive() so far.
int host_nccl_calls();
/// Calls of all_reduce() so far, those that connect included.
int host_nccl_sums();

}  // namespace pipewright::tests
