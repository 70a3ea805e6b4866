// A weight matrix in -> out and its bias, as linear layers and the projections of attention use
// them.
#pragma once

#include <string>
#include <vector>

#include "exec/layers/layer.hpp"

namespace pipewright::exec {

class Projection {
 public:
  Projection(const LayerSite& site, const std::string& name, int in, int out, bool bias);

  void forward(int rows, const float* x, float* y) const;
  void backward_input(int rows, const float* dy, float* dx) const;
  void backward_weight(int rows, const float* x, const float* dy);
  void collect(std::vector<Parameter*>& parameters);

 private:
  TensorOps& ops_;
  int in_ = 0, out_ = 0;
  Parameter weight_, bias_;  // bias_ is empty if there is none
};

}  // namespace pipewright::exec
