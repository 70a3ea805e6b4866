// How parameters start, and the projection that uses two of them.
#include <cmath>

#include "exec/base/random.hpp"
#include "exec/devices/cpu/layers/leaf.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec::cpu {

Parameter random_parameter(const LayerSite& site, const std::string& name, std::size_t size,
                           float bound) {
  Parameter parameter = constant_parameter(site, name, size, 0.0F);
  parameter.decays = true;
  const std::uint64_t key = key_of(site.seed, parameter.name);
  for (std::size_t i = 0; i < size; ++i) parameter.value[i] = bound * symmetric_uniform(key, i);
  return parameter;
}

Parameter constant_parameter(const LayerSite& site, const std::string& name, std::size_t size,
                             float value) {
  return {site.path + "/" + name, false, AlignedFloats(size, value), AlignedFloats(size, 0.0F)};
}

Projection::Projection(const LayerSite& site, const std::string& name, int in, int out, bool bias)
    : in_(in), out_(out), numerics_(site.numerics) {
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
  linear_forward({rows, in_, out_}, x, weight_.value.data(), y, numerics_);
  if (!bias_.value.empty()) bias_forward(rows, out_, bias_.value.data(), y);
}

void Projection::backward_input(int rows, const float* dy, float* dx) const {
  linear_backward_input({rows, in_, out_}, dy, weight_.value.data(), dx, numerics_);
}

void Projection::backward_weight(int rows, const float* x, const float* dy) {
  linear_backward_weight({rows, in_, out_}, x, dy, weight_.gradient.data(), numerics_);
  if (!bias_.value.empty()) bias_backward_weight(rows, out_, dy, bias_.gradient.data());
}

void Projection::collect(std::vector<Parameter*>& parameters) {
  parameters.push_back(&weight_);
  if (!bias_.value.empty()) parameters.push_back(&bias_);
}

}  // namespace pipewright::exec::cpu
