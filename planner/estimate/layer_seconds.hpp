// Times of what stages are made of, on one kind of node: shared by the costs of a plan's stages and
// by what of an exchange computation hides. Pure functions; seconds.
#pragma once

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

}  // namespace pipewright::planner
