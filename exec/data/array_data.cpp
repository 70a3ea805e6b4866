#include "exec/data/array_data.hpp"

#include <algorithm>
#include <utility>

#include "core/base/error.hpp"
#include "exec/base/random.hpp"
#include "exec/layers/layer.hpp"

namespace pipewright::exec {
namespace {

enum : std::uint64_t { kOrder = 4 };  // a purpose of random keys, as in exec/data/data.cpp

constexpr float kLargestByte = 255.0F;

[[noreturn]] void refuse_array(const NamedArray& named, const std::string& why) {
  throw InputError(named.file, "", why);
}

std::string shape_text(const NpyArray& array) {
  std::string text;
  for (const std::int64_t size : array.shape) {
    text += (text.empty() ? "" : ", ") + std::to_string(size);
  }
  return "[" + text + "]";
}

void expect_samples(const NamedArray& named, std::int64_t samples) {
  if (named.array.shape.empty() || named.array.shape.front() == 0) {
    refuse_array(named, "it holds no samples: the first dimension counts them");
  }
  if (named.array.shape.front() != samples) {
    refuse_array(named, "it has " + std::to_string(named.array.shape.front()) +
                            " samples, the inputs " + std::to_string(samples) +
                            ": they belong together one by one");
  }
}

void expect_entry(const NamedArray& named, std::int64_t elements, const std::string& what) {
  if (named.array.elements_per_entry() == elements) return;
  refuse_array(named, "its shape is " + shape_text(named.array) + ", but the model takes " +
                          std::to_string(elements) + " " + what + " a sample, so [" +
                          std::to_string(named.array.shape.front()) + ", " +
                          std::to_string(elements) + "]");
}

void expect_ids(const NamedArray& named, int below, const std::string& what) {
  if (!named.array.is_whole_numbers()) {
    refuse_array(named, what + " are whole numbers, but it holds " +
                            std::string(to_string(named.array.type)) +
                            "; convert it with a.astype('int32')");
  }
  const IntegerRange range = integer_range(named.array);
  if (range.least < 0 || range.most >= below) {
    refuse_array(named, "its " + what + " go from " + std::to_string(range.least) + " to " +
                            std::to_string(range.most) + ", but the model knows 0 to " +
                            std::to_string(below - 1));
  }
}

int vocabulary_of(const Model& model) {
  const Layer* layer = &model.layers.front();
  while (!layer->inner.empty()) layer = &layer->inner.front();
  return layer->vocabulary;
}

void check_answers(const Model& model, const DataShape& shape, const TrainingArrays& arrays) {
  const std::int64_t samples = arrays.inputs.array.shape.front();
  const int width = width_in_front_of(model, static_cast<int>(model.layers.size()));
  const bool classifies = model.loss == LossKind::SoftmaxCrossEntropy;
  const auto& answers = classifies ? arrays.labels : arrays.targets;
  const auto& others = classifies ? arrays.targets : arrays.labels;
  if (others) {
    refuse_array(*others, std::string("the model's loss is ") +
                              (classifies ? "softmax_cross_entropy, which takes labels, no targets"
                                          : "mse, which takes targets, no labels"));
  }
  if (!answers) {
    if (!shape.with_answers) return;
    refuse_array(arrays.inputs, std::string("inputs alone teach nothing: name the ") +
                                    (classifies ? "labels" : "targets") + " that belong to them");
  }
  expect_samples(*answers, samples);
  if (classifies) {
    expect_entry(*answers, model.sequence, "labels");
    expect_ids(*answers, width, "labels");
  } else {
    expect_entry(*answers, std::int64_t{model.sequence} * width, "targets");
  }
}

void check_inputs(const Model& model, const NamedArray& inputs) {
  expect_samples(inputs, inputs.array.shape.empty() ? 0 : inputs.array.shape.front());
  const int width = width_in_front_of(model, 0);
  if (width > 0) return expect_entry(inputs, std::int64_t{model.sequence} * width, "numbers");
  expect_entry(inputs, model.sequence, "token ids");
  expect_ids(inputs, vocabulary_of(model), "token ids");
}

class ArraySource final : public DataSource {
 public:
  ArraySource(const Model& model, const DataShape& shape, TrainingArrays arrays)
      : shape_(shape),
        reads_tokens_(width_in_front_of(model, 0) == 0),
        samples_(static_cast<std::uint64_t>(arrays.inputs.array.shape.front())),
        arrays_(std::move(arrays)) {}

  MicroBatch micro_batch(std::int64_t step, int micro_batch) const override {
    const std::uint64_t first =
        static_cast<std::uint64_t>(step) * shape_.batch() + shape_.first_sample(micro_batch);
    MicroBatch batch;
    for (int s = 0; s < shape_.samples; ++s) {
      const std::int64_t entry = entry_of(first + static_cast<std::uint64_t>(s));
      if (reads_tokens_) {
        append(batch.tokens, integers(arrays_.inputs.array, entry));
      } else {
        append(batch.inputs, floats(arrays_.inputs.array, entry));
      }
      if (arrays_.labels) append(batch.labels, integers(arrays_.labels->array, entry));
      if (arrays_.targets) append(batch.targets, floats(arrays_.targets->array, entry));
    }
    return batch;
  }
  std::vector<DataContent> contents() const override {
    std::vector<DataContent> contents = {content("data", arrays_.inputs)};
    if (arrays_.labels) contents.push_back(content("labels", *arrays_.labels));
    if (arrays_.targets) contents.push_back(content("targets", *arrays_.targets));
    return contents;
  }

 private:
  std::int64_t entry_of(std::uint64_t number) const {
    const std::uint64_t epoch = number / samples_, place = number % samples_;
    if (!shape_.shuffled) return static_cast<std::int64_t>(place);
    const std::uint64_t key = key_of(key_of(shape_.seed, kOrder), epoch);
    return static_cast<std::int64_t>(shuffled(key, place, samples_));
  }

  static std::vector<std::int32_t> integers(const NpyArray& array, std::int64_t entry) {
    const std::int64_t size = array.elements_per_entry();
    return integers_of(array, entry * size, size);
  }

  static std::vector<float> floats(const NpyArray& array, std::int64_t entry) {
    const std::int64_t size = array.elements_per_entry();
    std::vector<float> values = floats_of(array, entry * size, size);
    if (array.type == NpyType::UInt8) {
      for (float& value : values) value /= kLargestByte;
    }
    return values;
  }

  /// The same bytes may be another array.
  static DataContent content(const std::string& name, const NamedArray& named) {
    DataContent content = content_of(name, named.array.data);
    content.checksum = key_of(content.checksum, static_cast<std::uint64_t>(named.array.type));
    for (const std::int64_t size : named.array.shape)
      content.checksum = key_of(content.checksum, static_cast<std::uint64_t>(size));
    return content;
  }

  template <class T>
  static void append(std::vector<T>& all, const std::vector<T>& more) {
    all.insert(all.end(), more.begin(), more.end());
  }

  DataShape shape_;
  bool reads_tokens_;
  std::uint64_t samples_;
  TrainingArrays arrays_;
};

}  // namespace

TrainingArrays read_arrays(const DataFiles& files) {
  TrainingArrays arrays;
  arrays.inputs = {files.data, read_npy(files.data)};
  if (!files.labels.empty()) arrays.labels = {files.labels, read_npy(files.labels)};
  if (!files.targets.empty()) arrays.targets = {files.targets, read_npy(files.targets)};
  return arrays;
}

std::unique_ptr<DataSource> array_source(const Model& model, const DataShape& shape,
                                         TrainingArrays arrays) {
  check_inputs(model, arrays.inputs);
  check_answers(model, shape, arrays);
  return std::make_unique<ArraySource>(model, shape, std::move(arrays));
}

}  // namespace pipewright::exec
