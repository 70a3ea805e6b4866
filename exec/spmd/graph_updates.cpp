#include "exec/spmd/graph_updates.hpp"

#include "exec/layers/adam_step.hpp"

namespace pipewright::exec::graphs {
namespace {

using UpdateKind = spmd::GraphOptimizer::Kind;

/// Every parameter decays, as by default in PaddlePaddle and PyTorch.
AdamFactors factors_of(const spmd::GraphOptimizer& optimizer, int step) {
  OptimizerSpec spec;
  spec.learning_rate = optimizer.learning_rate;
  spec.beta1 = optimizer.beta1;
  spec.beta2 = optimizer.beta2;
  spec.epsilon = optimizer.epsilon;
  spec.weight_decay = optimizer.weight_decay;
  return adam_factors(spec, step, true);
}

}  // namespace

PartStates first_states(UpdateKind kind, const spmd::LocalPart& part) {
  return PartStates(spmd::states_of(kind).size(), zeros_of(part));
}

void update_part(const spmd::GraphOptimizer& optimizer, int step, const LocalArray& gradient,
                 LocalArray& value, PartStates& states) {
  const std::size_t size = value.values.size();
  if (optimizer.kind == UpdateKind::AdamW) {
    adam_step(factors_of(optimizer, step), size, gradient.values.data(), states[0].values.data(),
              states[1].values.data(), value.values.data());
    return;
  }
  const auto rate = static_cast<float>(optimizer.learning_rate);
  const auto kept = static_cast<float>(optimizer.momentum);
  for (std::size_t i = 0; i < size; ++i) {
    float change = gradient.values[i];
    if (optimizer.kind == UpdateKind::Momentum) {
      change += kept * states[0].values[i];
      states[0].values[i] = change;
    }
    value.values[i] -= rate * change;
  }
}

}  // namespace pipewright::exec::graphs
