// A linear layer that multiplies by the token table of the model's embedding (core/model/tie.hpp):
// logits = x · tableᵀ, table[vocabulary][width]. In a stage with the embedding the two use one
// Parameter; elsewhere the head holds a copy of it, which starts equal and stays so, because the
// gradients of all copies are summed before each update (docs/semantics.md §3.2).
#pragma once

#include <memory>

#include "exec/layers/layer.hpp"

namespace pipewright::exec {

/// What the head of a stage uses and its embedding, if it has one, offers. Null if nothing in the
/// model is tied.
std::unique_ptr<SharedTable> shared_table_of(const Model& model);

std::unique_ptr<TrainableLayer> make_tied_linear(const Layer& layer, const LayerSite& site);

}  // namespace pipewright::exec
