#include "exec/training/stage_weights.hpp"

#include "core/base/error.hpp"

namespace pipewright::exec {

void StageWeights::forget_training() { throw Bug("a forward-only stage on a device that trains"); }

}  // namespace pipewright::exec
