// The table of exec/transports/nccl/module_api.h on the host's table (tests/support/host_cuda.hpp):
// sends copy ahead, as NCCL may, and a communicator stays in progress until its receives have met
// their sends, so the host that polls it waits. So it serves Programs whose receives stand just
// before what needs them. Sums, scattered or not, add floats or numbers of bfloat16, and whole ones
// float64 too, in the order of members, and gatherings are of bytes; each stays in progress until
// all members have called it: the k-th calls on a communicator belong together, and are of one kind
// and size. A communicator reads its
// name whenever it is asked for its state, as NCCL does on threads of its own. Any thread may call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exec/devices/cuda/module_api.h"
#include "exec/transports/nccl/module_api.h"

namespace pipewright::tests {

/// The GPUs' memory is that of `cuda`, which is taken from here on.
const pipewright_nccl& host_nccl(const pipewright_cuda& cuda);

/// Calls of send() and receive() so far.
int host_nccl_calls();
/// Threads that NCCL would have started for calls of send() and receive(): one for each group of
/// them, and one for each outside of groups.
int host_nccl_threads();
/// What a communicator of so many CTAs takes of its GPU's memory.
inline constexpr std::int64_t kHostNcclBytesOfCta = 1024;
/// Allocations of a GPU's memory since the last communicator was made.
std::int64_t host_nccl_late_allocations();
/// Calls of all_reduce() so far, those that connect included; of reduce_scatter(); of all_gather().
int host_nccl_sums();
int host_nccl_scattered_sums();
int host_nccl_gatherings();

/// What a member of a communicator has called, and how many bytes of what kind it was for.
struct HostNcclCall {
  enum class Kind : std::uint8_t { Send, Receive, AllReduce, ReduceScatter, AllGather };
  std::string communicator;  // its name
  int member = 0;
  Kind kind = Kind::Send;
  std::size_t count = 0;
  int type = PIPEWRIGHT_NCCL_BYTES;
  int peer = -1;   // Send, Receive
  int group = -1;  // calls of one ncclGroupStart and End have the same number; -1: it is of none
};
/// From now on calls are noted; and those since then, of each member in its order.
void host_nccl_note_calls();
std::vector<HostNcclCall> host_nccl_noted_calls();

}  // namespace pipewright::tests
