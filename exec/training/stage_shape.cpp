#include "exec/training/stage_shape.hpp"

#include <string>

#include "core/base/error.hpp"
#include "core/model/layers.hpp"
#include "core/model/tensor_split.hpp"
#include "exec/layers/stage_layers.hpp"

namespace pipewright::exec {
namespace {

void check_ids(const std::vector<std::int32_t>& ids, std::size_t rows, int below,
               const std::string& what) {
  if (ids.size() != rows) {
    throw InputError("a micro-batch needs " + std::to_string(rows) + " " + what + ", but has " +
                     std::to_string(ids.size()));
  }
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= below) {
      throw InputError("one of the " + what + " is " + std::to_string(id) +
                       ", but the model knows 0 to " + std::to_string(below - 1));
    }
  }
}

void check_floats(const std::vector<float>& values, std::size_t words, const std::string& what) {
  if (values.size() != words) {
    throw InputError("a micro-batch needs " + std::to_string(words) + " " + what + ", but has " +
                     std::to_string(values.size()));
  }
}

/// Of rows that lie one after another those that this rank has.
template <class Number>
std::vector<Number> own_rows_of(const StageShape& shape, const std::vector<Number>& whole) {
  const Extent all = shape.whole_extent();
  const std::size_t width = whole.size() / all.words(1);
  std::vector<Number> own;
  own.reserve(whole.size() / static_cast<std::size_t>(shape.context.parts));
  for (int r = 0; r < shape.extent.rows() && width > 0; ++r) {
    const auto row = row_of_all(shape.context, shape.extent.sequence, r);
    const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(words_of(row, 1) * width);
    own.insert(own.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
  }
  return own;
}

}  // namespace

StageShape shape_of(const StageSpec& spec) {
  const Model& model = *spec.model;
  const int layers = static_cast<int>(model.layers.size());
  PIPEWRIGHT_ASSERT(
      0 <= spec.first_layer && spec.first_layer <= spec.end_layer && spec.end_layer <= layers,
      "a stage's layers lie outside the model");
  StageShape shape;
  shape.is_first = spec.first_layer == 0;
  shape.is_last = spec.end_layer == layers;
  PIPEWRIGHT_ASSERT(spec.first_layer < spec.end_layer || (shape.is_last && !shape.is_first),
                    "only the loss may be a stage without layers");
  PIPEWRIGHT_ASSERT(spec.micro_batch_size > 0 && spec.micro_batches > 0 && model.sequence > 0,
                    "a stage needs at least one row and one micro-batch");
  shape.extent = extent_of_rank(model, spec.micro_batch_size, spec.ranks);
  shape.context = {spec.place.context, spec.ranks.context};
  shape.micro_batches = spec.micro_batches;
  shape.width_in = width_in_front_of(model, spec.first_layer);
  shape.width_out = width_in_front_of(model, spec.end_layer);
  if (shape.is_first) shape.vocabulary = first_leaf(model.layers.front()).vocabulary;
  shape.loss = model.loss;
  if (spec.ranks.rows) shape.row_parts = spec.ranks.tensor;
  shape.divides_logits = shape.is_last && vocabulary_split(model, spec.ranks.tensor).head;
  return shape;
}

MicroBatch own_part_of(const StageShape& shape, const MicroBatch& whole) {
  return {.tokens = own_rows_of(shape, whole.tokens),
          .inputs = own_rows_of(shape, whole.inputs),
          .labels = own_rows_of(shape, whole.labels),
          .targets = own_rows_of(shape, whole.targets),
          .counted_samples = whole.counted_samples};
}

void require_fit(const StageShape& shape, const MicroBatch& batch, bool with_answers) {
  const auto rows = static_cast<std::size_t>(shape.whole_extent().rows());
  const auto parts = static_cast<std::size_t>(shape.context.parts);
  if (shape.is_first && shape.width_in == 0) {
    check_ids(batch.tokens, rows, shape.vocabulary, "tokens");
  } else if (shape.is_first) {
    check_floats(batch.inputs, shape.data_words() * parts, "inputs");
  }
  if (!shape.is_last || !with_answers) return;
  if (shape.has_labels()) {
    check_ids(batch.labels, rows, shape.width_out, "labels");
  } else {
    check_floats(batch.targets, shape.answer_words() * parts, "targets");
  }
}

}  // namespace pipewright::exec
