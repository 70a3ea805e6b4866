#include "exec/training/stage_loss.hpp"

namespace pipewright::exec {

double loss_terms(const StageShape& shape) {
  return shape.has_labels() ? shape.extent.rows()
                            : static_cast<double>(shape.extent.words(shape.width_out));
}

Buffer loss_forward(StageDevice& device, const StageShape& shape, int micro_batch, Buffer output) {
  const LossShape of{shape.extent.rows(), shape.width_out};
  if (!shape.has_labels()) {
    device.mse_forward(micro_batch, of, output.floats());
    return output;
  }
  // The logits have served, unless the last layer keeps its own output.
  Buffer probabilities = output.is_shared() ? device.ops().take(output.words()) : output;
  device.softmax_cross_entropy_forward(micro_batch, of, output.floats(), probabilities.floats());
  return probabilities;
}

Buffer loss_gradient(StageDevice& device, const StageShape& shape, int micro_batch, Buffer kept,
                     double divisor) {
  const LossShape of{shape.extent.rows(), shape.width_out};
  Buffer gradient = kept.is_shared() ? device.ops().take(kept.words()) : kept;
  const auto scale = static_cast<float>(1 / (divisor * loss_terms(shape)));
  if (shape.has_labels()) {
    device.softmax_cross_entropy_backward_input(micro_batch, of, kept.floats(), scale,
                                                gradient.floats());
  } else {
    device.mse_backward_input(micro_batch, of, kept.floats(), scale, gradient.floats());
  }
  return gradient;
}

}  // namespace pipewright::exec
