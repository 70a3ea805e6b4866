// The layers of model.json: reading them one after the other, each with the width and the image
// that the layer before gives it, and writing them. Pure functions; InputError names file and
// place.
#pragma once

#include "core/base/json.hpp"
#include "core/model/model.hpp"

namespace pipewright {

inline constexpr int kWidest = 1 << 20;
inline constexpr int kMostLayers = 4096;
/// An embedding stands in front of them and a head after them.
inline constexpr int kMostBlocks = kMostLayers - 2;
inline constexpr int kMostHeads = 65536;
/// The base of Llama's rotary positions (arXiv 2302.13971, after 2104.09864).
inline constexpr double kRotaryBase = 10'000;
inline constexpr int kLongestSequence = 1 << 24;
inline constexpr int kLargestVocabulary = 1 << 24;

/// "kv_heads" and "rotary_base" of a layer or a shape with so many heads of this width; what is not
/// there stays as it is.
void read_attention_details(const JsonCursor& value, int head_width, int heads, int& kv_heads,
                            double& rotary_base);

/// "rotary_base" alone.
void read_rotary_base(const JsonCursor& value, double& rotary_base);

/// A model's list of layers. Where layers name their inputs, those that more than one tensor
/// connects come back as one Graph (core/model/graph.hpp).
std::vector<Layer> read_layers(const JsonCursor& list);
Json to_json(const Layer& layer);

/// A layer that gives rows as wide as they come.
Layer layer_of_width(std::string name, LayerKind kind, int width);
Layer linear_layer(std::string name, int in, int out, bool bias = true);
/// A layer that holds these, one after the other.
Layer layer_group(std::string name, LayerKind kind, std::vector<Layer> inner);

/// The first layer of those that hold no others.
const Layer& first_leaf(const Layer& layer);

}  // namespace pipewright
