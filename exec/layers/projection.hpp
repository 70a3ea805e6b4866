// A weight matrix in -> out and its bias, as linear layers and the projections of attention use
// them.
#pragma once

#include <vector>

#include "exec/layers/layer.hpp"

namespace pipewright::exec {

class Projection {
 public:
  /// The bias is null where there is none. Both live as long as it.
  Projection(TensorOps& ops, int in, int out, Parameter& weight, Parameter* bias)
      : ops_(ops), in_(in), out_(out), weight_(weight), bias_(bias) {}

  void forward(int rows, const float* x, float* y) const;
  void backward_input(int rows, const float* dy, float* dx) const;
  void backward_weight(int rows, const float* x, const float* dy);

 private:
  TensorOps& ops_;
  int in_ = 0, out_ = 0;
  Parameter& weight_;
  Parameter* bias_;
};

}  // namespace pipewright::exec
