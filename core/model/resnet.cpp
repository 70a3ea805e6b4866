#include "core/model/resnet.hpp"

#include <string>
#include <utility>

#include "core/model/image.hpp"
#include "core/model/layers.hpp"

namespace pipewright {

namespace {

constexpr int kExpansion = 4;  // a block's last channels to those of its 3x3 convolution

/// Layers one after the other, each taking the image that the one before gives.
class Chain {
 public:
  explicit Chain(const ImageShape& image) : image_(image) {}

  Chain& convolution(const std::string& name, int channels, const Window& window) {
    return add(conv2d_layer(name, image_, channels, window));
  }
  Chain& norm(const std::string& name) { return add(batch_norm_layer(name, image_)); }
  Chain& max_pool(const Window& window) {
    return add(pool_layer("pool", LayerKind::MaxPool, image_, window));
  }
  Chain& relu(const std::string& name) {
    Layer layer;
    layer.name = name;
    layer.kind = LayerKind::Relu;
    layer.in = layer.out = image_.numbers();
    layers_.push_back(std::move(layer));
    return *this;
  }

  const ImageShape& image() const { return image_; }
  std::vector<Layer> take() { return std::move(layers_); }

 private:
  Chain& add(Layer layer) {
    image_ = layer.image_out;
    layers_.push_back(std::move(layer));
    return *this;
  }

  ImageShape image_;
  std::vector<Layer> layers_;
};

Layer stem(const ResNetShape& shape, ImageShape& image) {
  Chain chain(shape.image);
  chain.convolution("conv", shape.width, shape.stem).norm("norm").relu("relu");
  if (shape.pools) chain.max_pool({3, 2, 1});
  image = chain.image();
  return layer_group("stem", LayerKind::Sequential, chain.take());
}

Layer bottleneck(const std::string& name, int channels, int stride, ImageShape& image) {
  Chain inner(image);
  inner.convolution("reduce", channels, {1, 1, 0}).norm("norm 1").relu("relu 1");
  inner.convolution("conv", channels, {3, stride, 1}).norm("norm 2").relu("relu 2");
  inner.convolution("expand", kExpansion * channels, {1, 1, 0}).norm("norm 3");
  Chain shortcut(image);
  if (inner.image() != image) {
    shortcut.convolution("project", kExpansion * channels, {1, stride, 0}).norm("norm");
  }
  image = inner.image();
  Layer residual = layer_group("residual", LayerKind::Residual, inner.take());
  residual.shortcut = shortcut.take();
  Chain last(image);
  last.relu("relu");
  std::vector<Layer> parts;
  parts.push_back(std::move(residual));
  parts.push_back(std::move(last.take().front()));
  return layer_group(name, LayerKind::Sequential, std::move(parts));
}

Layer head(const ResNetShape& shape, const ImageShape& image) {
  Layer linear;
  linear.name = "classes";
  linear.in = image.channels;
  linear.out = shape.classes;
  std::vector<Layer> parts;
  parts.push_back(global_average_pool_layer("pool", image));
  parts.push_back(std::move(linear));
  return layer_group("head", LayerKind::Sequential, std::move(parts));
}

}  // namespace

std::vector<Layer> expand(const ResNetShape& shape) {
  std::vector<Layer> layers;
  ImageShape image;
  layers.push_back(stem(shape, image));
  int channels = shape.width, number = 0;
  for (std::size_t g = 0; g < shape.blocks.size(); ++g) {
    for (int b = 0; b < shape.blocks[g]; ++b) {
      const int stride = g > 0 && b == 0 ? 2 : 1;
      layers.push_back(bottleneck("block " + std::to_string(number++), channels, stride, image));
    }
    channels *= 2;
  }
  layers.push_back(head(shape, image));
  return layers;
}

}  // namespace pipewright
