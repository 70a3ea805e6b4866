#include "exec/devices/cpu/serial.hpp"

namespace pipewright::exec {

SerialRun::SerialRun(const Model& model, const SerialSpec& spec)
    : micro_batches_(spec.micro_batches),
      clip_grad_norm_(spec.optimizer.clip_grad_norm),
      stage_(model, 0, static_cast<int>(model.layers.size()), spec.micro_batch_size,
             spec.micro_batches, spec.seed, spec.optimizer, spec.options) {}

double SerialRun::gradients(const DataSource& data, int step) {
  stage_.discard_gradients();
  for (int m = 0; m < micro_batches_; ++m) {
    stage_.set_batch(m, data.micro_batch(step, m));
    stage_.forward(m, {});
    stage_.backward_input(m, {});
    stage_.backward_weight(m);
  }
  stage_.settle_gradients();
  return stage_.loss();
}

void SerialRun::clip() {
  if (clip_grad_norm_ <= 0) return;
  stage_.scale_gradients(clip_factor(stage_.squares().norm(), clip_grad_norm_));
}

double SerialRun::step(const DataSource& data, int step) {
  const double loss = gradients(data, step);
  clip();
  stage_.update(step);
  return loss;
}

}  // namespace pipewright::exec
