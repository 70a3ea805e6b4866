// Latent attention (DeepSeek-V2, arXiv 2405.04434 §2.1): what is written down of it, and the layers
// that it is made of. Pure functions.
#pragma once

#include <vector>

#include "core/base/json.hpp"
#include "core/model/model.hpp"

namespace pipewright {

/// {"query_rank", "key_value_rank", "plain", "rotary", "value"}, of which "query_rank" may be left
/// out; each at most `most`, other keys are refused. Throws InputError that names the place.
LatentWidths read_latent_widths(const JsonCursor& value, int most);
Json to_json(const LatentWidths& widths);

/// What a layer with so many heads reads: refuses an odd rotary part, and heads that together are
/// wider than a layer may be.
LatentWidths read_latent_widths_of_layer(const JsonCursor& value, int heads);

/// What makes a row's queries, head by head: [width] -> [heads][plain + rotary].
std::vector<Layer> latent_queries(const Layer& layer);
/// And its keys and values: [width] -> [heads][plain + value].
std::vector<Layer> latent_keys_and_values(const Layer& layer);
/// And the part of its key that has positions: [width] -> [rotary].
Layer latent_rotary_key(const Layer& layer);

/// All of these.
std::vector<Layer> latent_layers(const Layer& layer);

}  // namespace pipewright
