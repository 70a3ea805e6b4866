#include "exec/layers/projection.hpp"

#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {

void Projection::forward(int rows, const float* x, float* y) const {
  ops_.linear_forward({rows, in_, out_}, x, weight_.weights(), y);
  if (bias_ != nullptr) ops_.bias_forward(rows, out_, bias_->weights(), y);
}

void Projection::backward_input(int rows, const float* dy, float* dx) const {
  ops_.linear_backward_input({rows, in_, out_}, dy, weight_.weights(), dx);
}

void Projection::backward_weight(int rows, const float* x, const float* dy) {
  ops_.linear_backward_weight({rows, in_, out_}, x, dy, weight_.gradients());
  if (bias_ != nullptr) ops_.bias_backward_weight(rows, out_, dy, bias_->gradients());
}

}  // namespace pipewright::exec
