// On a GPU the host only launches what an action is made of: kernels told from the slices of the
// host that launched them.
#pragma once

#include <cstdint>
#include <vector>

#include "traces/analysis/trace_timeline.hpp"

namespace pipewright::traces {

/// What ran on a device, and when the host launched it.
struct Kernel {
  TimeRange ran;
  std::int64_t launched_ns = 0;
  bool communicates = false;  // of NCCL
};

/// True if a computation among `slices`, those of one host by their starts, launched a kernel.
bool launches_kernels(const std::vector<TraceSpan>& slices, const std::vector<Kernel>& kernels);

/// Gives each slice the time of the kernels that were launched while it was the innermost one, from
/// the first start to the last end; of a transfer or a collective those of NCCL, if there are any.
/// A transfer without a kernel keeps the host's time, unless hosts `run_ahead` of all transfers;
/// anything else without one takes no time, after what was launched before it. The order of
/// `slices` stays. Appends to `receives` the kernels of NCCL that receive. Returns how many kernels
/// of NCCL belong to no slice.
std::size_t move_to_device(std::vector<TraceSpan>& slices, const std::vector<Kernel>& kernels,
                           std::vector<TimeRange>& receives, bool run_ahead = false);

}  // namespace pipewright::traces
