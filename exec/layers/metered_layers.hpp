// Layers on a MeteredOps: made without memory, to be asked what they cost.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/model/recompute.hpp"
#include "exec/layers/layer.hpp"
#include "exec/layers/metered_ops.hpp"
#include "exec/layers/rank_groups.hpp"

namespace pipewright::exec {

/// make_stage_layers() (exec/layers/stage_layers.hpp). A user's own layer is taken as the model
/// describes it: it keeps its input, and computes as many operations as the model says. `groups`:
/// the ranks that divide them; null: none.
std::vector<std::unique_ptr<TrainableLayer>> make_metered_layers(
    const Model& model, int first, int end, Extent extent, MeteredOps& ops,
    std::span<const LayerRecompute> recompute, RankGroups* groups = nullptr);

/// One layer alone.
std::unique_ptr<TrainableLayer> make_metered_layer(const Layer& layer, Extent extent,
                                                   MeteredOps& ops, bool recomputes_attention);

}  // namespace pipewright::exec
