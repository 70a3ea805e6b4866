// The layers that see a row as an image: convolution, batch norm and pooling, with the shapes they
// make. A row of c · h · w numbers is an image channel by channel, each row by row. Pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/base/json.hpp"
#include "core/model/model.hpp"

namespace pipewright {

bool is_image_layer(LayerKind kind);

/// Places of a window along `size` numbers: floor((size + 2 padding - window) / stride) + 1, below
/// 1 if it fits nowhere.
int window_places(int size, const Window& window);

/// Layers with in, out and image_out filled; nothing is checked.
Layer conv2d_layer(std::string name, const ImageShape& image, int channels, const Window& window,
                   bool bias = false, int groups = 1);
Layer batch_norm_layer(std::string name, const ImageShape& image);
Layer pool_layer(std::string name, LayerKind kind, const ImageShape& image, const Window& window);
Layer global_average_pool_layer(std::string name, const ImageShape& image);

/// The keys of an image layer in model.json.
std::vector<std::string_view> image_keys_of(LayerKind kind);
/// Reads an image layer. `before` is the image that the layer before gives, `width` that layer's
/// width; no channels and 0 where they are not known. Throws InputError.
void read_image_layer(const JsonCursor& value, const ImageShape& before, int width, Layer& layer);
/// Adds the keys of image_keys_of() but name and kind.
void write_image_layer(const Layer& layer, Json& json);

}  // namespace pipewright
