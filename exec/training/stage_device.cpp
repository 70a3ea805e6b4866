#include "exec/training/stage_device.hpp"

#include "core/base/error.hpp"

namespace pipewright::exec {

void StageDevice::put_row_losses(int, float*) {
  throw Bug("losses of parts of sequences on a device that has none");
}
void StageDevice::take_row_losses(int, int, const float*) {
  throw Bug("losses of parts of sequences on a device that has none");
}

namespace {

[[noreturn]] void refuse_divided_logits() {
  throw Bug("logits that ranks divide on a device that has none");
}

}  // namespace

void StageDevice::tell_logits(int, const LogitsPart&, const float*, float*) {
  refuse_divided_logits();
}
void StageDevice::add_exponentials(const LogitsPart&, const float*, const float*, float*, float*) {
  refuse_divided_logits();
}
void StageDevice::finish_cross_entropy(int, const LogitsPart&, const float*, const float*, float*) {
  refuse_divided_logits();
}
void StageDevice::divided_cross_entropy_backward_input(int, const LogitsPart&, const float*, float,
                                                       float*) {
  refuse_divided_logits();
}

}  // namespace pipewright::exec
