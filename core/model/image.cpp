#include "core/model/image.hpp"

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"

namespace pipewright {

namespace {

constexpr int kMostNumbers = 1 << 20;  // of an image, as of any row
constexpr int kLargestWindow = 1 << 10;

Layer image_layer(std::string name, LayerKind kind, const ImageShape& before,
                  const ImageShape& after) {
  Layer layer;
  layer.name = std::move(name);
  layer.kind = kind;
  layer.image = before;
  layer.image_out = after;
  layer.in = before.numbers();
  layer.out = after.numbers();
  return layer;
}

ImageShape after_window(const ImageShape& image, int channels, const Window& window) {
  return {channels, window_places(image.height, window), window_places(image.width, window)};
}

std::string text_of(const ImageShape& image) {
  return "[" + std::to_string(image.channels) + ", " + std::to_string(image.height) + ", " +
         std::to_string(image.width) + "]";
}

/// "image": [channels, height, width].
ImageShape read_image_shape(const JsonCursor& value) {
  const std::vector<JsonCursor> sizes = value.elements();
  if (sizes.size() != 3) value.fail("[channels, height, width]");
  const ImageShape image{read_count(sizes[0], 1, kMostNumbers),
                         read_count(sizes[1], 1, kMostNumbers),
                         read_count(sizes[2], 1, kMostNumbers)};
  const double numbers = 1.0 * image.channels * image.height * image.width;
  if (numbers > kMostNumbers) value.fail("an image of at most 1048576 numbers");
  return image;
}

/// Without "image" the image of the layer before; a batch norm takes a plain row as channels of one
/// number each.
ImageShape read_image(const JsonCursor& value, const ImageShape& before, int width,
                      LayerKind kind) {
  const auto given = value.find("image");
  if (!given && before.channels == 0) {
    if (kind == LayerKind::BatchNorm && width > 0) return {width, 1, 1};
    value.at("image");  // no layer before gives it
  }
  if (!given) return before;
  const ImageShape image = read_image_shape(*given);
  if (before.channels > 0 && image != before) {
    given->fail(text_of(before) + ", the image after the layer before");
  }
  if (width > 0 && image.numbers() != width) {
    given->fail("an image of " + std::to_string(width) + " numbers, the width of the layer before");
  }
  return image;
}

Window read_window(const JsonCursor& value, const ImageShape& image, bool is_pool) {
  Window window;
  const JsonCursor kernel = value.at("kernel");
  window.size = read_count(kernel, 1, kLargestWindow);
  window.stride = is_pool ? window.size : 1;
  if (const auto stride = value.find("stride")) {
    window.stride = read_count(*stride, 1, kLargestWindow);
  }
  if (const auto padding = value.find("padding")) {
    // A window that could lie outside of the image altogether would have no largest number.
    window.padding = read_count(*padding, 0, is_pool ? window.size / 2 : kLargestWindow);
  }
  if (window_places(image.height, window) < 1 || window_places(image.width, window) < 1) {
    kernel.fail("a kernel that fits into the image " + text_of(image) + " with its padding");
  }
  return window;
}

Layer read_conv2d(const JsonCursor& value, const ImageShape& image) {
  const Window window = read_window(value, image, false);
  const JsonCursor channels = value.at("channels");
  const int count = read_count(channels, 1, kMostNumbers);
  int groups = 1;
  if (const auto given = value.find("groups")) {
    groups = read_count(*given, 1, kMostNumbers);
    if (image.channels % groups != 0 || count % groups != 0) {
      given->fail("a number of groups that divides the channels in front (" +
                  std::to_string(image.channels) + ") and after (" + std::to_string(count) + ")");
    }
  }
  const ImageShape after = after_window(image, count, window);
  if (1.0 * after.channels * after.height * after.width > kMostNumbers) {
    channels.fail("channels that make an image of at most 1048576 numbers");
  }
  const auto bias = value.find("bias");
  return conv2d_layer("", image, count, window, !bias || bias->boolean(), groups);
}

Layer layer_of_kind(const JsonCursor& value, const ImageShape& image, LayerKind kind) {
  switch (kind) {
    case LayerKind::Conv2d:
      return read_conv2d(value, image);
    case LayerKind::BatchNorm:
      return batch_norm_layer("", image);
    case LayerKind::GlobalAveragePool:
      return global_average_pool_layer("", image);
    default:
      return pool_layer("", kind, image, read_window(value, image, true));
  }
}

}  // namespace

bool is_image_layer(LayerKind kind) {
  return kind == LayerKind::Conv2d || kind == LayerKind::BatchNorm || kind == LayerKind::MaxPool ||
         kind == LayerKind::AveragePool || kind == LayerKind::GlobalAveragePool;
}

int window_places(int size, const Window& window) {
  const int room = size + 2 * window.padding - window.size;
  return room < 0 ? 0 : room / window.stride + 1;
}

Layer conv2d_layer(std::string name, const ImageShape& image, int channels, const Window& window,
                   bool bias, int groups) {
  Layer layer =
      image_layer(std::move(name), LayerKind::Conv2d, image, after_window(image, channels, window));
  layer.window = window;
  layer.bias = bias;
  layer.groups = groups;
  return layer;
}

Layer batch_norm_layer(std::string name, const ImageShape& image) {
  return image_layer(std::move(name), LayerKind::BatchNorm, image, image);
}

Layer pool_layer(std::string name, LayerKind kind, const ImageShape& image, const Window& window) {
  Layer layer =
      image_layer(std::move(name), kind, image, after_window(image, image.channels, window));
  layer.window = window;
  return layer;
}

Layer global_average_pool_layer(std::string name, const ImageShape& image) {
  return image_layer(std::move(name), LayerKind::GlobalAveragePool, image, {image.channels, 1, 1});
}

std::vector<std::string_view> image_keys_of(LayerKind kind) {
  switch (kind) {
    case LayerKind::Conv2d:
      return {"name",   "kind",   "inputs",  "image",  "channels",
              "kernel", "stride", "padding", "groups", "bias"};
    case LayerKind::MaxPool:
    case LayerKind::AveragePool:
      return {"name", "kind", "inputs", "image", "kernel", "stride", "padding"};
    default:
      return {"name", "kind", "inputs", "image"};
  }
}

void read_image_layer(const JsonCursor& value, const ImageShape& before, int width, Layer& layer) {
  Layer read = layer_of_kind(value, read_image(value, before, width, layer.kind), layer.kind);
  read.name = std::move(layer.name);
  read.inputs = std::move(layer.inputs);
  layer = std::move(read);
}

void write_image_layer(const Layer& layer, Json& json) {
  json["image"] = {layer.image.channels, layer.image.height, layer.image.width};
  if (layer.kind == LayerKind::Conv2d) json["channels"] = layer.image_out.channels;
  if (layer.kind == LayerKind::BatchNorm || layer.kind == LayerKind::GlobalAveragePool) return;
  json["kernel"] = layer.window.size;
  json["stride"] = layer.window.stride;
  json["padding"] = layer.window.padding;
  if (layer.kind != LayerKind::Conv2d) return;
  json["groups"] = layer.groups;
  json["bias"] = layer.bias;
}

}  // namespace pipewright
