// F and I of the loss, behind the last layer.
#pragma once

#include "exec/base/buffer.hpp"
#include "exec/training/stage_device.hpp"
#include "exec/training/stage_shape.hpp"

namespace pipewright::exec {

/// F. Takes the last layer's output; the result is what I needs of it. StageDevice::loss_sum() has
/// the loss's sum over loss_terms().
Buffer loss_forward(StageDevice& device, const StageShape& shape, int micro_batch, Buffer output);
/// I, from what F has kept: the gradient of the output, where `divisor` micro-batches share the
/// gradient of their mean loss.
Buffer loss_gradient(StageDevice& device, const StageShape& shape, int micro_batch, Buffer kept,
                     double divisor);
/// Of a micro-batch's mean: its rows, or for mse all numbers of its output.
double loss_terms(const StageShape& shape);

}  // namespace pipewright::exec
