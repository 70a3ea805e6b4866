#include "exec/data/image_data.hpp"

#include <cmath>
#include <numbers>

#include "core/base/error.hpp"
#include "core/model/image.hpp"
#include "core/model/layers.hpp"
#include "exec/base/random.hpp"
#include "exec/layers/layer.hpp"

namespace pipewright::exec {
namespace {

enum : std::uint64_t { kImages = 5 };  // a purpose of random keys, as in exec/data/data.cpp

constexpr std::uint64_t kDirections = 8;
constexpr float kNoise = 0.3F;

class ImageSource final : public DataSource {
 public:
  ImageSource(const DataShape& shape, const ImageShape& image, int per_sample, int classes)
      : shape_(shape),
        image_(image),
        images_(static_cast<std::uint64_t>(shape.samples) * static_cast<std::uint64_t>(per_sample)),
        classes_(static_cast<std::uint64_t>(classes)) {}

  MicroBatch micro_batch(std::int64_t step, int micro_batch) const override {
    const std::uint64_t key =
        key_of(key_of(shape_.seed, kImages), static_cast<std::uint64_t>(step));
    const std::uint64_t first = static_cast<std::uint64_t>(micro_batch) * images_;
    MicroBatch batch;
    batch.inputs.reserve(images_ * static_cast<std::size_t>(image_.numbers()));
    for (std::uint64_t i = 0; i < images_; ++i) {
      const std::uint64_t image_key = key_of(key, first + i);
      const std::uint64_t label = uniform_below(image_key, 0, classes_);
      batch.labels.push_back(static_cast<std::int32_t>(label));
      draw(image_key, label, batch.inputs);
    }
    return batch;
  }

 private:
  void draw(std::uint64_t key, std::uint64_t label, std::vector<float>& pixels) const {
    const float angle = std::numbers::pi_v<float> * static_cast<float>(label % kDirections) /
                        static_cast<float>(std::min(classes_, kDirections));
    // Two stripes across the image, and one more for each round of directions.
    const float waves = 2.0F + static_cast<float>(label / kDirections);
    const float across = 2 * std::numbers::pi_v<float> * waves / static_cast<float>(image_.width);
    const float dx = across * std::cos(angle), dy = across * std::sin(angle);
    const float phase = std::numbers::pi_v<float> * symmetric_uniform(key, 1);
    std::uint64_t next = 2;
    for (int c = 0; c < image_.channels; ++c) {
      for (int y = 0; y < image_.height; ++y) {
        for (int x = 0; x < image_.width; ++x) {
          const float at = phase + dx * static_cast<float>(x) + dy * static_cast<float>(y);
          pixels.push_back(std::sin(at) + kNoise * symmetric_uniform(key, next++));
        }
      }
    }
  }

  DataShape shape_;
  ImageShape image_;
  std::uint64_t images_, classes_;
};

}  // namespace

bool classifies_images(const Model& model) {
  return is_image_layer(first_leaf(model.layers.front()).kind) &&
         model.loss == LossKind::SoftmaxCrossEntropy;
}

std::unique_ptr<DataSource> image_source(const Model& model, const DataShape& shape) {
  if (!classifies_images(model)) {
    throw InputError("model \"" + model.name +
                     "\" does not sort images into classes: it needs other data");
  }
  const int classes = width_in_front_of(model, static_cast<int>(model.layers.size()));
  return std::make_unique<ImageSource>(shape, first_leaf(model.layers.front()).image,
                                       model.sequence, classes);
}

}  // namespace pipewright::exec
