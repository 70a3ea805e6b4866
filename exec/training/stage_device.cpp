#include "exec/training/stage_device.hpp"

#include "core/base/error.hpp"

namespace pipewright::exec {

ForwardOutcome StageDevice::outcome(int, const Buffer&, RunMode) {
  throw Bug("the outcome of a stage on a device that only trains");
}

}  // namespace pipewright::exec
