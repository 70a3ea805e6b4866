// A layer that is trained once on random numbers, for comparison with a slow version of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "exec/devices/cpu/host_ops.hpp"
#include "exec/layers/layer.hpp"
#include "tests/unit/numeric.hpp"

namespace pipewright::test {

struct TrainedLayer {
  Floats at;  // the inputs, and after them all parameters
  Floats y, gradients;
  std::size_t inputs = 0;
};

/// F, I and W from the gradient `dy` of the outputs. W adds to ones.
inline TrainedLayer train_once(exec::TrainableLayer& layer, exec::cpu::HostOps& ops,
                               std::size_t inputs, const Floats& dy) {
  TrainedLayer trained{.at = random_floats(inputs, 1), .y = {}, .gradients = {}, .inputs = inputs};
  std::vector<exec::Parameter*> parameters;
  layer.collect(parameters);
  for (std::size_t k = 0; k < parameters.size(); ++k) {
    exec::Parameter& one = *parameters[k];
    const Floats start = random_floats(static_cast<std::size_t>(one.start.size), 2 + k);
    one.value.assign(start.begin(), start.end());
    one.gradient.assign(start.size(), 1.0F);
    trained.at.insert(trained.at.end(), start.begin(), start.end());
  }
  exec::Saved saved = layer.new_saved();
  exec::Buffer x = ops.take(inputs), gradient = ops.take(dy.size());
  std::copy_n(trained.at.begin(), inputs, x.floats());
  std::copy(dy.begin(), dy.end(), gradient.floats());
  const exec::Buffer y = run_now(layer.forward(std::move(x), saved));
  trained.y.assign(y.floats(), y.floats() + dy.size());
  const exec::Buffer dx = run_now(layer.backward_input(std::move(gradient), saved, true));
  run_now(layer.backward_weight(saved));
  trained.gradients.assign(dx.floats(), dx.floats() + inputs);
  for (const exec::Parameter* one : parameters)
    trained.gradients.insert(trained.gradients.end(), one->gradient.begin(), one->gradient.end());
  return trained;
}

/// Of sum_i weights[i] · f(at)[i].
inline void expect_gradients(const TrainedLayer& trained, const Function& f, const Floats& weights,
                             double tolerance) {
  Doubles expected = numeric_gradient(f, widened(trained.at), weights);
  for (std::size_t i = trained.inputs; i < expected.size(); ++i) expected[i] += 1;
  expect_close(trained.gradients, expected, tolerance, "I and W");
}

}  // namespace pipewright::test
