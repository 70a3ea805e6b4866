#include "exec/layers/projection.hpp"

#include <cmath>

#include "exec/layers/parameters.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {

Projection::Projection(const LayerSite& site, const std::string& name, int in, int out, bool bias)
    : ops_(*site.ops), in_(in), out_(out) {
  // A uniform of this bound gives outputs a third of the inputs' variance: small enough to start
  // near the uniform loss, large enough to learn.
  const float bound = 1.0F / std::sqrt(static_cast<float>(in));
  weight_ = random_parameter(site, name + "weight",
                             static_cast<std::size_t>(in) * static_cast<std::size_t>(out), bound);
  if (bias) {
    bias_ = constant_parameter(site, name + "bias", static_cast<std::size_t>(out), 0.0F);
  }
}

void Projection::forward(int rows, const float* x, float* y) const {
  ops_.linear_forward({rows, in_, out_}, x, weight_.weights(), y);
  if (!bias_.value.empty()) ops_.bias_forward(rows, out_, bias_.weights(), y);
}

void Projection::backward_input(int rows, const float* dy, float* dx) const {
  ops_.linear_backward_input({rows, in_, out_}, dy, weight_.weights(), dx);
}

void Projection::backward_weight(int rows, const float* x, const float* dy) {
  ops_.linear_backward_weight({rows, in_, out_}, x, dy, weight_.gradients());
  if (!bias_.value.empty()) ops_.bias_backward_weight(rows, out_, dy, bias_.gradients());
}

void Projection::collect(std::vector<Parameter*>& parameters) {
  parameters.push_back(&weight_);
  if (!bias_.value.empty()) parameters.push_back(&bias_);
}

}  // namespace pipewright::exec
