// The layers of a stage, from the model's description.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/model/recompute.hpp"
#include "exec/layers/layer.hpp"
#include "exec/layers/rank_groups.hpp"

namespace pipewright::exec {

/// What one of the ranks has of a micro-batch of so many samples.
Extent extent_of_rank(const Model& model, int samples, const StageDivision& ranks);

/// The site, where these ranks divide the layers with it.
LayerSite among(RankGroups& groups, LayerSite site);

/// The layers [first, end) of the model; `recompute` by layer of the model, empty: nothing is
/// recomputed. Neighbours that are recomputed whole become one, which keeps what comes into the
/// first; a tied head begins anew, for its part of the table's gradient is added apart from the
/// embedding's. Of the site: extent, ops, seed, factory and groups. Where ranks divide rows, all
/// rows go into the loss. Throws InputError if the layers do not fit each other.
std::vector<std::unique_ptr<TrainableLayer>> make_stage_layers(
    const Model& model, int first, int end, LayerSite site,
    std::span<const LayerRecompute> recompute);

}  // namespace pipewright::exec
