// The shorthand for a decoder-only transformer: a few numbers that stand for a chain of layers.
#pragma once

#include <optional>

#include "core/model/model.hpp"

namespace pipewright {

struct TransformerShape {
  int hidden = 0, layers = 0, heads = 0;
  int ffn = 0;  // width of the inner layer of the feed-forward part
  int vocabulary = 0, sequence = 0;
  bool tied_head = false;  // the head multiplies by the embedding's table
};

/// Embedding with learned positions, `layers` blocks, head; named "embedding", "block k", "head".
/// Checks nothing: the shape has to be valid.
std::vector<Layer> expand(const TransformerShape& shape);

/// The shape whose expansion the model is; nullopt if it is not one.
std::optional<TransformerShape> transformer_shape_of(const Model& model);

}  // namespace pipewright
