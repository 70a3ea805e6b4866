// Times of what stages are made of, on one kind of node: shared by the costs of a plan's stages and
// by what of an exchange computation hides. Pure functions; seconds.
#pragma once

#include <map>
#include <shared_mutex>
#include <tuple>

#include "planner/estimate/step_estimate.hpp"
#include "planner/estimate/step_parts.hpp"

namespace pipewright::planner {

/// Of one micro-batch.
struct LayerSeconds {
  std::array<BlockSeconds, kBlockKinds> blocks;  // of the kinds that the model has
  EndSeconds embedding, head;
  double below_adapters = 0;  // that the backward of the model's first block leaves out

  double forward(const LayerRange& range) const;
  double weight(const LayerRange& range) const;  // of the following
  double backward(const LayerRange& range) const;
};
LayerSeconds layer_seconds(const Architecture& model, const FrameworkTraits& framework,
                           const Machine& machine, const ParallelSetup& setup,
                           const NodeRates& node);

/// layer_seconds(), where all nodes are of one kind found once for all setups that divide a layer
/// alike. Always asked with the same model, framework and machine, by any number of threads.
class KnownLayers {
 public:
  LayerSeconds of(const Architecture& model, const FrameworkTraits& framework,
                  const Machine& machine, const ParallelSetup& setup, const NodeRates& node);

 private:
  using Key = std::tuple<int, int, int, int, int, LayerRecompute, bool, bool, bool>;

  std::shared_mutex mutex_;
  std::map<Key, LayerSeconds> known_;
};

}  // namespace pipewright::planner
