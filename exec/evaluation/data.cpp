#include "exec/evaluation/data.hpp"

#include <algorithm>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/text_file.hpp"
#include "exec/data/array_data.hpp"
#include "exec/layers/layer.hpp"

namespace pipewright::exec {
namespace {

std::int64_t first_sample(const DataShape& shape, std::int64_t step, int micro_batch) {
  return (step * shape.micro_batches + micro_batch) * shape.samples;
}

/// Says of each micro-batch of another source how many of its samples are in the set.
class CountedSource final : public DataSource {
 public:
  CountedSource(std::unique_ptr<DataSource> source, const DataShape& shape, std::int64_t samples)
      : source_(std::move(source)), shape_(shape), samples_(samples) {}

  MicroBatch micro_batch(std::int64_t step, int micro_batch) const override {
    MicroBatch batch = source_->micro_batch(step, micro_batch);
    const std::int64_t left = samples_ - first_sample(shape_, step, micro_batch);
    batch.counted_samples = static_cast<int>(std::clamp<std::int64_t>(left, 0, shape_.samples));
    return batch;
  }
  std::vector<DataContent> contents() const override { return source_->contents(); }

 private:
  const std::unique_ptr<DataSource> source_;
  const DataShape shape_;
  const std::int64_t samples_;
};

/// Sample n is the n-th piece of a text; its labels are the bytes one further on.
class TextPieces final : public DataSource {
 public:
  TextPieces(const DataShape& shape, int sequence, std::string text, std::int64_t samples)
      : shape_(shape), sequence_(sequence), text_(std::move(text)), samples_(samples) {}

  MicroBatch micro_batch(std::int64_t step, int micro_batch) const override {
    MicroBatch batch;
    const std::int64_t first = first_sample(shape_, step, micro_batch);
    for (int sample = 0; sample < shape_.samples; ++sample) {
      const auto begin = static_cast<std::size_t>((first + sample) % samples_ * sequence_);
      append_sample(batch, text_, begin, static_cast<std::size_t>(sequence_));
    }
    return batch;
  }
  std::vector<DataContent> contents() const override { return {content_of("data", text_)}; }

 private:
  const DataShape shape_;
  const int sequence_;
  const std::string text_;
  const std::int64_t samples_;
};

DataSet counted(std::unique_ptr<DataSource> source, const DataShape& shape, std::int64_t samples) {
  return {std::make_unique<CountedSource>(std::move(source), shape, samples), samples};
}

}  // namespace

std::int64_t DataSet::steps(const DataShape& shape) const {
  const std::int64_t each = std::int64_t{shape.samples} * shape.micro_batches;
  return (samples + each - 1) / each;
}

DataSet make_data_set(const Model& model, const DataShape& shape, const DataFiles& files,
                      int random_steps) {
  PIPEWRIGHT_ASSERT(!shape.shuffled, "a data set is read in its order");
  if (files.data.ends_with(".npy")) {
    TrainingArrays arrays = read_arrays(files);
    const auto& sizes = arrays.inputs.array.shape;
    const std::int64_t samples = sizes.empty() ? 0 : sizes.front();
    return counted(array_source(model, shape, std::move(arrays)), shape, samples);
  }
  // Both say what is wrong with files and model.
  auto random = make_data(model, shape, files);
  if (width_in_front_of(model, 0) > 0) {
    return counted(std::move(random), shape,
                   std::int64_t{random_steps} * shape.micro_batches * shape.samples);
  }
  std::string text = read_data(files.data);
  const auto samples = (static_cast<std::int64_t>(text.size()) - 1) / model.sequence;
  return counted(std::make_unique<TextPieces>(shape, model.sequence, std::move(text), samples),
                 shape, samples);
}

}  // namespace pipewright::exec
