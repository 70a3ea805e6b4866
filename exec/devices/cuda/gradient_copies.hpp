// Sums of gradients between ranks that are threads of one process, without the host: each rank
// brings a copy of what it has, which stays until the step has ended, and adds up what all have
// brought, in the order of ranks. So all come to the same bits, nobody reads what another one
// changes, and a captured step holds it. Not in exact numerics, whose sums are no floats.
#pragma once

#include <cstdint>
#include <vector>

#include "core/program/program.hpp"
#include "exec/devices/cuda/queue.hpp"
#include "exec/runtime/transport.hpp"

namespace pipewright::exec::cuda {

/// Whether the ranks add this up so, if they are threads of one process: a copy serves one sum of a
/// step, and replicas that share weights out need another one.
bool adds_copies(const Program& program, const Instruction& sum, RankId rank, Precision precision);

class GradientCopies {
 public:
  explicit GradientCopies(Queue& queue) : queue_(queue) {}

  /// What is there behind the work on the computing stream. Takes its memory the first time.
  PartPtr bring(const float* from, std::size_t floats);
  /// False if the parts are none of bring(). Takes memory for a piece of another's the first time.
  bool add_up(const std::vector<PartPtr>& parts, float* to, std::size_t floats);
  std::int64_t bytes() const { return static_cast<std::int64_t>(copy_.bytes() + arrived_.bytes()); }

 private:
  Queue& queue_;
  Buffer copy_, arrived_;
};

}  // namespace pipewright::exec::cuda
