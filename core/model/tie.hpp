// Weights that two layers of a model have in common: a tied head multiplies by the table of token
// embeddings (Press and Wolf, "Using the output embedding to improve language models", 2017). Where
// the two layers lie in different stages each of these holds the table, and their gradients are
// summed by REDUCE_TIED (docs/semantics.md §3.2). Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/model/model.hpp"

namespace pipewright {

struct Tie {
  int embedding = 0, head = 0;  // the model's layers that hold the two
  std::int64_t weights = 0;     // elements of the table
};
/// Whether the layer, or one inside it, is tied.
bool holds_tied(const Layer& layer);
/// nullopt if nothing is tied.
std::optional<Tie> tie_of(const Model& model);

/// Throws InputError at `list`, the model's layers, if a tied layer finds no table that fits it.
void require_tie_fits(const JsonCursor& list, const Model& model);

}  // namespace pipewright
