#include "planner/estimate/layer_seconds.hpp"

#include <mutex>

namespace pipewright::planner {

namespace {

/// `each` of the blocks' times, all together.
template <class Each>
double sum_of_blocks(const LayerSeconds& layers, const LayerRange& range, Each each) {
  double sum = 0;
  for_each_kind(range.blocks, [&](BlockKind kind, int count) {
    sum += count * each(layers.blocks[kind.index()]);
  });
  return sum;
}

}  // namespace

double LayerSeconds::forward(const LayerRange& range) const {
  return sum_of_blocks(*this, range, [](const BlockSeconds& block) { return block.forward; }) +
         (range.embedding ? embedding.forward : 0) + (range.head ? head.forward : 0);
}

double LayerSeconds::weight(const LayerRange& range) const {
  return sum_of_blocks(*this, range, [](const BlockSeconds& block) { return block.weight; }) +
         (range.embedding ? embedding.weight : 0) + (range.head ? head.weight : 0);
}

double LayerSeconds::backward(const LayerRange& range) const {
  return sum_of_blocks(*this, range, [](const BlockSeconds& block) { return block.backward; }) -
         (range.first_block ? below_adapters : 0) +
         (range.embedding ? embedding.input + embedding.weight : 0) +
         (range.head ? head.input + head.weight : 0);
}

LayerSeconds layer_seconds(const Architecture& model, const FrameworkTraits& framework,
                           const Machine& machine, const ParallelSetup& setup,
                           const NodeRates& node) {
  const double rows = block_sizes(model, setup).rows;
  LayerSeconds layers;
  for_each_kind(blocks_in(model, 0, model.blocks).blocks, [&](BlockKind kind, int /*count*/) {
    layers.blocks[kind.index()] =
        block_seconds(model, framework, node, machine.devices_per_node, setup, kind);
  });
  layers.below_adapters = layers.blocks[model.kind_of(0).index()].below_adapters;
  layers.embedding = embedding_seconds(model, framework, node, machine, setup, rows);
  layers.head = head_seconds(model, framework, node, machine, setup, rows);
  return layers;
}

LayerSeconds KnownLayers::of(const Architecture& model, const FrameworkTraits& framework,
                             const Machine& machine, const ParallelSetup& setup,
                             const NodeRates& node) {
  if (machine.nodes.size() > 1) return layer_seconds(model, framework, machine, setup, node);
  // Gathered weights are copied; activations wait in the host's memory without a pipeline.
  const Key key{setup.tensor,
                setup.context,
                setup.experts,
                setup.expert_tensor(),
                setup.micro_batch_size,
                setup.recompute.of_all,
                setup.sequence_parallel,
                setup.zero >= 3,
                setup.pipeline == 1};
  {
    const std::shared_lock lock(mutex_);
    const auto known = known_.find(key);
    if (known != known_.end()) return known->second;
  }
  // Two threads that come here at once find the same.
  LayerSeconds layers = layer_seconds(model, framework, machine, setup, node);
  const std::unique_lock lock(mutex_);
  return known_.try_emplace(key, layers).first->second;
}

}  // namespace pipewright::planner
