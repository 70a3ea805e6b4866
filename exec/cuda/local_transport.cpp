#include "exec/cuda/local_transport.hpp"

#include <algorithm>

namespace pipewright::exec::cuda {

void LocalTransport::report(Timeline& timeline, Progress& progress) const {
  inner_.report(timeline, progress);
  // A step that is not over has no times of GPUs, and those of the step before mean nothing.
  const bool is_over = std::all_of(progress.ended.begin(), progress.ended.end(),
                                   [](std::uint8_t ended) { return ended != 0; });
  if (!is_over) return;
  const std::scoped_lock lock(times_.mutex);
  for (std::size_t id = 0; id < times_.end.size(); ++id) {
    if (times_.end[id] == kNotEnded) continue;
    // The host enqueues a transfer long before its data is there.
    timeline.start[id] = timeline.moving[id] = times_.moving[id];
    timeline.end[id] = times_.end[id];
  }
}

}  // namespace pipewright::exec::cuda
