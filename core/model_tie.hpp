// Weights that two layers of a model have in common: a tied head multiplies by the table of token
// embeddings (Press and Wolf, "Using the output embedding to improve language models", 2017). Where
// the two layers lie in different stages each of these holds the table, and their gradients are
// summed by REDUCE_TIED (docs/semantics.md §3.2). Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/model.hpp"
#include "core/plan.hpp"

namespace pipewright {

struct Tie {
  int embedding = 0, head = 0;  // the model's layers that hold the two
  std::int64_t weights = 0;     // elements of the table
};
/// Whether the layer, or one inside it, is tied.
bool holds_tied(const Layer& layer);
/// nullopt if nothing is tied.
std::optional<Tie> tie_of(const Model& model);

/// The stages of a cut that hold the table, ascending; none if nothing is tied or one stage has
/// both layers.
std::vector<StageId> tied_stages(const Model& model, std::span<const StagePlan> stages);

/// Throws InputError at `list`, the model's layers, if a tied layer finds no table that fits it.
void require_tie_fits(const JsonCursor& list, const Model& model);

}  // namespace pipewright
