#include "exec/devices/cpu/stage_device.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "core/base/error.hpp"
#include "exec/layers/parameters.hpp"
#include "exec/training/stage_loss.hpp"

namespace pipewright::exec::cpu {

StageDevice::StageDevice(const StageShape& shape, Numerics numerics)
    : shape_(shape),
      numerics_(numerics),
      ops_(pool_, numerics),
      kept_(static_cast<std::size_t>(shape.micro_batches)) {}

StageWeights& StageDevice::keep_parameters(const std::vector<Parameter*>& parameters,
                                           const OptimizerSpec& optimizer, std::uint64_t seed) {
  for (Parameter* parameter : parameters) allocate(*parameter, seed);
  return parameters_.emplace(parameters, optimizer, numerics_);
}

// --- Data ---

void StageDevice::keep_batch(int micro_batch, const MicroBatch& batch, bool with_answers) {
  MicroBatch& kept = at(micro_batch).batch;
  if (shape_.is_first && shape_.width_in == 0) {
    kept.tokens = batch.tokens;
  } else if (shape_.is_first) {
    kept.inputs = batch.inputs;
  }
  if (!shape_.is_last || !with_answers) return;
  if (shape_.has_labels()) {
    kept.labels = batch.labels;
  } else {
    kept.targets = batch.targets;
  }
}

Buffer StageDevice::input(int micro_batch) {
  const MicroBatch& batch = at(micro_batch).batch;
  Buffer made = pool_.take(shape_.data_words());
  if (shape_.width_in == 0) {
    std::copy(batch.tokens.begin(), batch.tokens.end(), made.ids());
  } else {
    std::copy(batch.inputs.begin(), batch.inputs.end(), made.floats());
  }
  return made;
}

// --- Losses ---

/// Where the losses of rows go, if somebody wants them.
double* StageDevice::rows_of(OfMicroBatch& one) {
  if (shape_.context.parts == 1) return nullptr;
  one.row_losses.resize(static_cast<std::size_t>(shape_.extent.rows()));
  return one.row_losses.data();
}

void StageDevice::softmax_cross_entropy_forward(int micro_batch, const LossShape& shape,
                                                const float* logits, float* probabilities) {
  OfMicroBatch& one = at(micro_batch);
  one.loss_sum = exec::softmax_cross_entropy_forward(shape, logits, one.batch.labels.data(),
                                                     probabilities, rows_of(one));
}

void StageDevice::softmax_cross_entropy_backward_input(int micro_batch, const LossShape& shape,
                                                       const float* probabilities, float scale,
                                                       float* dlogits) {
  exec::softmax_cross_entropy_backward_input(shape, probabilities,
                                             at(micro_batch).batch.labels.data(), scale, dlogits);
}

void StageDevice::tell_logits(int micro_batch, const LogitsPart& part, const float* logits,
                              float* facts) {
  exec::tell_logits(part, logits, at(micro_batch).batch.labels.data(), facts);
}

void StageDevice::add_exponentials(const LogitsPart& part, const float* logits, const float* facts,
                                   float* exponentials, float* sums) {
  exec::add_exponentials(part, logits, facts, exponentials, sums);
}

void StageDevice::finish_cross_entropy(int micro_batch, const LogitsPart& part, const float* facts,
                                       const float* sums, float* probabilities) {
  OfMicroBatch& one = at(micro_batch);
  one.loss_sum = exec::finish_cross_entropy(part, facts, sums, probabilities, rows_of(one));
}

void StageDevice::divided_cross_entropy_backward_input(int micro_batch, const LogitsPart& part,
                                                       const float* probabilities, float scale,
                                                       float* dlogits) {
  exec::divided_cross_entropy_backward_input(part, probabilities,
                                             at(micro_batch).batch.labels.data(), scale, dlogits);
}

void StageDevice::mse_forward(int micro_batch, const LossShape& shape, const float* y) {
  OfMicroBatch& one = at(micro_batch);
  one.loss_sum = exec::mse_forward(shape, y, one.batch.targets.data(), rows_of(one));
}

void StageDevice::mse_backward_input(int micro_batch, const LossShape& shape, const float* y,
                                     float scale, float* dy) {
  exec::mse_backward_input(shape, y, at(micro_batch).batch.targets.data(), scale, dy);
}

void StageDevice::put_row_losses(int micro_batch, float* at) {
  const std::vector<double>& losses = this->at(micro_batch).row_losses;
  std::memcpy(at, losses.data(), losses.size() * sizeof(double));
}

void StageDevice::take_row_losses(int micro_batch, int samples, const float* all) {
  at(micro_batch).loss_sum = sum_of_losses(shape_, samples, all);
}

double StageDevice::loss_sum(int micro_batch) const {
  const OfMicroBatch& one = kept_.at(static_cast<std::size_t>(micro_batch));
  PIPEWRIGHT_ASSERT(one.loss_sum.has_value(), "there is no loss before the last stage's F");
  return *one.loss_sum;
}

void StageDevice::note_outputs(int micro_batch, const LogitsPart& part, const float* outputs,
                               RunMode mode) {
  const LossShape& own = part.own;
  std::vector<std::int32_t> labels;
  if (mode == RunMode::Evaluate && shape_.has_labels()) labels = at(micro_batch).batch.labels;
  for (std::int32_t& label : labels) label -= part.first;
  ForwardOutcome outcome{.first_column = part.first,
                         .rows = outcomes_of_rows(own.rows, own.width, outputs, labels)};
  if (mode == RunMode::Predict)
    outcome.outputs.assign(outputs, outputs + std::ptrdiff_t{own.rows} * own.width);
  at(micro_batch).outcome = std::move(outcome);
}

}  // namespace pipewright::exec::cpu
