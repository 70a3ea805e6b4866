// The threads of a trace that show what GPUs did, piece by piece, below the actions that these
// pieces make up. Used by traces/chrome/trace.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/timeline/gpu_work.hpp"

namespace pipewright::traces {

struct GpuThread {
  std::string name;
  std::vector<const GpuWork*> work;  // by start; each begins where the one before has ended
};

/// By rank: a thread for each stream, and more where its pieces overlap in time. They point into
/// `work`, which is by rank, then start.
std::vector<std::vector<GpuThread>> gpu_threads(int ranks, std::span<const GpuWork> work);

}  // namespace pipewright::traces
