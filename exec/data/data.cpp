#include "exec/data/data.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/text_file.hpp"
#include "exec/base/checksum.hpp"
#include "exec/base/random.hpp"
#include "exec/data/array_data.hpp"
#include "exec/data/image_data.hpp"
#include "exec/layers/layer.hpp"

namespace pipewright::exec {
namespace {

/// Purposes of the random keys.
enum : std::uint64_t { kStarts = 1, kInputs = 2, kMap = 3 };

/// Of what is drawn for a step; the place in its batch tells the rest.
std::uint64_t key_of_step(const DataShape& shape, std::uint64_t purpose, std::int64_t step) {
  return key_of(key_of(shape.seed, purpose), static_cast<std::uint64_t>(step));
}

bool starts_with_embedding(const Model& model) { return width_in_front_of(model, 0) == 0; }

/// The first embedding in the chain; it is the very first leaf.
const Layer& leading_embedding(const Model& model) {
  const Layer* layer = &model.layers.front();
  while (!layer->inner.empty()) layer = &layer->inner.front();
  return *layer;
}

class TextSource final : public DataSource {
 public:
  TextSource(const Model& model, const DataShape& shape, std::string text)
      : shape_(shape), sequence_(model.sequence), text_(std::move(text)) {}

  MicroBatch micro_batch(std::int64_t step, int micro_batch) const override {
    const std::uint64_t key = key_of_step(shape_, kStarts, step);
    const std::uint64_t first = shape_.first_sample(micro_batch);
    const auto length = static_cast<std::size_t>(sequence_);
    MicroBatch batch;
    batch.tokens.reserve(static_cast<std::size_t>(shape_.samples) * length);
    batch.labels.reserve(static_cast<std::size_t>(shape_.samples) * length);
    for (int sample = 0; sample < shape_.samples; ++sample) {
      const std::size_t start =
          uniform_below(key, first + static_cast<std::uint64_t>(sample), text_.size() - length);
      append_sample(batch, text_, start, length);
    }
    return batch;
  }
  std::vector<DataContent> contents() const override { return {content_of("data", text_)}; }

 private:
  DataShape shape_;
  int sequence_;
  std::string text_;
};

/// How many inputs go into one output of the linear map. A full matrix would cost as much as the
/// model that is trained on it.
constexpr int kTerms = 4;

class VectorSource final : public DataSource {
 public:
  VectorSource(const Model& model, const DataShape& shape, int in, int out)
      : shape_(shape),
        rows_(static_cast<std::size_t>(shape.samples) * static_cast<std::size_t>(model.sequence)),
        in_(static_cast<std::size_t>(in)),
        loss_(model.loss),
        map_(static_cast<std::size_t>(out)) {
    const std::uint64_t key = key_of(shape.seed, kMap);
    std::uint64_t next = 0;
    for (auto& terms : map_) {
      for (Term& term : terms) {
        term.input = uniform_below(key, next++, in_);
        term.weight = symmetric_uniform(key, next++);
      }
    }
  }

  MicroBatch micro_batch(std::int64_t step, int micro_batch) const override {
    const std::uint64_t key = key_of_step(shape_, kInputs, step);
    MicroBatch batch;
    batch.inputs.resize(rows_ * in_);
    const std::uint64_t first = static_cast<std::uint64_t>(micro_batch) * batch.inputs.size();
    for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
      batch.inputs[i] = symmetric_uniform(key, first + i);
    }
    std::vector<float> mapped(map_.size());
    for (std::size_t r = 0; r < rows_; ++r) {
      map_row(batch.inputs.data() + r * in_, mapped);
      if (loss_ == LossKind::Mse) {
        batch.targets.insert(batch.targets.end(), mapped.begin(), mapped.end());
      } else {
        const auto largest = std::max_element(mapped.begin(), mapped.end());
        batch.labels.push_back(static_cast<std::int32_t>(largest - mapped.begin()));
      }
    }
    return batch;
  }

 private:
  struct Term {
    std::size_t input = 0;
    float weight = 0;
  };

  void map_row(const float* x, std::vector<float>& y) const {
    for (std::size_t j = 0; j < y.size(); ++j) {
      y[j] = 0;
      for (const Term& term : map_[j]) y[j] += term.weight * x[term.input];
    }
  }

  DataShape shape_;
  std::size_t rows_, in_;
  LossKind loss_;
  std::vector<std::array<Term, kTerms>> map_;  // by output
};

std::string read_training_text(const std::string& path) {
  std::string text = read_data(path);
  if (text.empty()) throw InputError(path, "", "the training data is empty: name a text file");
  return text;
}

}  // namespace

void append_sample(MicroBatch& batch, std::string_view text, std::size_t begin,
                   std::size_t length) {
  for (std::size_t i = begin; i < begin + length; ++i) {
    batch.tokens.push_back(static_cast<unsigned char>(text[i]));
    batch.labels.push_back(static_cast<unsigned char>(text[i + 1]));
  }
}

DataContent content_of(std::string name, std::string_view bytes) {
  const auto checksum = checksum_of(std::as_bytes(std::span(bytes.data(), bytes.size())), {});
  return {std::move(name), bytes.size(), checksum};
}

std::unique_ptr<DataSource> text_source(const Model& model, const DataShape& shape,
                                        std::string text, const std::string& file) {
  if (!starts_with_embedding(model) || model.loss != LossKind::SoftmaxCrossEntropy) {
    throw InputError("model \"" + model.name +
                     "\" cannot be trained on text: that takes an embedding as its first layer "
                     "and the loss softmax_cross_entropy");
  }
  if (text.size() < static_cast<std::size_t>(model.sequence) + 1) {
    throw InputError(file, "",
                     "the text has " + std::to_string(text.size()) + " bytes, but a sample takes " +
                         std::to_string(model.sequence + 1) + ": use a longer text");
  }
  const int vocabulary = std::min(leading_embedding(model).vocabulary,
                                  width_in_front_of(model, static_cast<int>(model.layers.size())));
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int byte = static_cast<unsigned char>(text[i]);
    if (byte >= vocabulary) {
      throw InputError(file, "byte " + std::to_string(i),
                       "its value " + std::to_string(byte) +
                           " is outside the model's vocabulary of " + std::to_string(vocabulary) +
                           ": a vocabulary of 256 takes any file");
    }
  }
  return std::make_unique<TextSource>(model, shape, std::move(text));
}

std::unique_ptr<DataSource> vector_source(const Model& model, const DataShape& shape) {
  const int in = width_in_front_of(model, 0);
  if (in == 0) {
    throw InputError("model \"" + model.name +
                     "\" begins with an embedding: it needs text, not vectors");
  }
  const int out = width_in_front_of(model, static_cast<int>(model.layers.size()));
  return std::make_unique<VectorSource>(model, shape, in, out);
}

std::unique_ptr<DataSource> make_data(const Model& model, const DataShape& shape,
                                      const std::string& path) {
  return make_data(model, shape, DataFiles{path, "", ""});
}

std::unique_ptr<DataSource> make_data(const Model& model, const DataShape& shape,
                                      const DataFiles& files) {
  const std::string& path = files.data;
  if (path.ends_with(".npy")) return array_source(model, shape, read_arrays(files));
  if (!files.labels.empty() || !files.targets.empty()) {
    throw InputError("labels and targets belong to inputs in a .npy file" +
                     (path.empty() ? std::string() : ", and " + path + " is none") +
                     "; name the inputs, or leave the others out");
  }
  if (classifies_images(model)) return image_source(model, shape);
  if (!starts_with_embedding(model)) return vector_source(model, shape);
  if (path.empty()) {
    throw InputError("model \"" + model.name +
                     "\" learns from text: name a file of it as the training data");
  }
  return text_source(model, shape, read_training_text(path), path);
}

}  // namespace pipewright::exec
