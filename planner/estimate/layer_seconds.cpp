#include "planner/estimate/layer_seconds.hpp"

namespace pipewright::planner {

double LayerSeconds::forward(const LayerRange& range) const {
  return range.dense * dense.forward + range.with_experts * with_experts.forward +
         (range.embedding ? embedding.forward : 0) + (range.head ? head.forward : 0);
}

double LayerSeconds::weight(const LayerRange& range) const {
  return range.dense * dense.weight + range.with_experts * with_experts.weight +
         (range.embedding ? embedding.weight : 0) + (range.head ? head.weight : 0);
}

double LayerSeconds::backward(const LayerRange& range) const {
  return range.dense * dense.backward + range.with_experts * with_experts.backward +
         (range.embedding ? embedding.input + embedding.weight : 0) +
         (range.head ? head.input + head.weight : 0);
}

LayerSeconds layer_seconds(const Architecture& model, const FrameworkTraits& framework,
                           const Machine& machine, const ParallelSetup& setup,
                           const NodeRates& node) {
  const double rows = block_sizes(model, setup).rows;
  const auto block = [&](bool experts) {
    return block_seconds(model, framework, node, machine.devices_per_node, setup, experts);
  };
  LayerSeconds layers;
  if (model.experts.count == 0 || model.experts.dense_blocks > 0) layers.dense = block(false);
  if (model.experts.count > 0) layers.with_experts = block(true);
  layers.embedding = embedding_seconds(model, framework, node, machine, setup, rows);
  layers.head = head_seconds(model, framework, node, machine, setup, rows);
  return layers;
}

}  // namespace pipewright::planner
