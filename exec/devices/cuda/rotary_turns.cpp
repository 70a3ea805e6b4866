#include "exec/devices/cuda/rotary_turns.hpp"

#include <algorithm>

#include "exec/devices/cpu/kernels/rotary.hpp"

namespace pipewright::exec::cuda {

RotaryTurns::~RotaryTurns() {
  for (const Made& one : made_) cuda_.release(one.at);
}

const float* RotaryTurns::of(const RotaryShape& shape) {
  const auto found = std::find_if(made_.begin(), made_.end(), [&](const Made& one) {
    return one.sequence == shape.sequence && one.head_width == shape.head_width &&
           one.base == shape.base && one.context == shape.context;
  });
  if (found != made_.end()) return found->at;
  Made made{shape.sequence, shape.head_width, shape.base, shape.context, {cuda_, shape.scratch()}};
  cpu::fill_turns(shape, made.staged.data());
  const std::size_t bytes = shape.scratch() * sizeof(float);
  made.at = static_cast<float*>(required(cuda_, cuda_.allocate(bytes)));
  made_.push_back(made);
  require(cuda_, cuda_.copy(stream_, made.at, made.staged.data(), bytes));
  return made.at;
}

std::int64_t RotaryTurns::bytes() const {
  std::int64_t bytes = 0;
  for (const Made& one : made_)
    bytes += static_cast<std::int64_t>(one.staged.size() * sizeof(float));
  return bytes;
}

}  // namespace pipewright::exec::cuda
