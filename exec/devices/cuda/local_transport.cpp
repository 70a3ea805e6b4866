#include "exec/devices/cuda/local_transport.hpp"

#include <algorithm>

namespace pipewright::exec::cuda {

void LocalTransport::report(Timeline& timeline, Progress& progress) const {
  inner_.report(timeline, progress);
  // A step that is not over has no times of GPUs, and those of the step before mean nothing.
  const bool is_over = std::all_of(progress.ended.begin(), progress.ended.end(),
                                   [](std::uint8_t ended) { return ended != 0; });
  if (is_over) times_.write(timeline);
}

}  // namespace pipewright::exec::cuda
