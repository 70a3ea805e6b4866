// A layer that computes with all rows of a micro-batch, among layers of which ranks have rows of
// their own (exec/layers/divided_rows.hpp): rows come together in front of it, and every rank
// computes all of it.
#pragma once

#include <memory>

#include "exec/layers/layer.hpp"

namespace pipewright::exec {

/// Whether the layer, at a site that divides rows, does not do with rows of its own.
bool needs_all_rows(const Layer& layer, const LayerSite& site);

/// `ends_whole`: all rows go on behind it, as a loss needs them; else the rank's own.
std::unique_ptr<TrainableLayer> make_on_all_rows(const Layer& layer, const LayerSite& site,
                                                 bool ends_whole = false);

}  // namespace pipewright::exec
