#include "exec/training/stage_shape.hpp"

#include <string>

#include "core/base/error.hpp"
#include "core/model/layers.hpp"
#include "core/model/tensor_split.hpp"

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
  shape.extent = {spec.micro_batch_size, model.sequence};
  shape.micro_batches = spec.micro_batches;
  shape.width_in = width_in_front_of(model, spec.first_layer);
  shape.width_out = width_in_front_of(model, spec.end_layer);
  if (shape.is_first) shape.vocabulary = first_leaf(model.layers.front()).vocabulary;
  shape.loss = model.loss;
  if (spec.ranks.rows) shape.row_parts = spec.ranks.tensor;
  shape.divides_logits = shape.is_last && vocabulary_split(model, spec.ranks.tensor).head;
  return shape;
}

void require_fit(const StageShape& shape, const MicroBatch& batch, bool with_answers) {
  const auto rows = static_cast<std::size_t>(shape.extent.rows());
  if (shape.is_first && shape.width_in == 0) {
    check_ids(batch.tokens, rows, shape.vocabulary, "tokens");
  } else if (shape.is_first) {
    check_floats(batch.inputs, shape.data_words(), "inputs");
  }
  if (!shape.is_last || !with_answers) return;
  if (shape.has_labels()) {
    check_ids(batch.labels, rows, shape.width_out, "labels");
  } else {
    check_floats(batch.targets, shape.answer_words(), "targets");
  }
}

}  // namespace pipewright::exec
