// The table of exec/devices/cuda/module_api.h on this machine's CPU: memory is the host's, kernels
// are the GPU's own text (exec/devices/cuda/kernel_table.hpp) in loops, and what lies on a stream
// is done when the Order says, within what streams and events promise. So a wait that was
// forgotten, or memory that is used again too early, shows as wrong numbers without a GPU. Fresh
// memory is full of NaN. A partition is current to one thread at a time, as with the driver:
// another thread that enters it fails.
//
// Objects of one table belong to it. Any thread may call, as with the real table.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/devices/cuda/module_api.h"

namespace pipewright::tests {

enum class HostOrder : std::uint8_t {
  Eager,    // at once
  Lazy,     // not before somebody waits for it, and then only what has to be
  Shuffled  // now and then some of some stream
};

/// Two GPUs of 132 SMs each.
const pipewright_cuda& host_cuda(HostOrder order);

/// Bytes of the GPUs' memory that are taken now, and how often some was taken so far.
struct HostMemory {
  std::int64_t bytes = 0, allocations = 0;
};
HostMemory host_memory();
/// The SMs that each cuBLAS was told to choose kernels for, in the order in which they were made.
std::vector<int> host_blas_sms();

/// Of all tables, so far: kernels and copies that were put on streams, those of captures left out,
/// and launches of graphs.
struct HostCounts {
  std::int64_t puts = 0, launches = 0;
};
HostCounts host_counts();

}  // namespace pipewright::tests
