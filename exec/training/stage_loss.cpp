#include "exec/training/stage_loss.hpp"

#include <cstddef>
#include <cstring>
#include <utility>

#include "core/model/context_split.hpp"
#include "exec/layers/divided/divided_loss.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec {
namespace {

/// Of the last layer's output, or of what a rank has of it.
std::size_t numbers_of(const StageShape& shape, const TensorGroup* tensor) {
  const int parts = shape.divides_logits ? tensor->size() : 1;
  return shape.extent.words(shape.width_out / parts);
}

/// Rows of the first samples, all of whose columns this rank has where none divide them.
LogitsPart part_of(const StageShape& shape, const TensorGroup* tensor, int samples) {
  const int rows = samples * shape.extent.sequence;
  if (!shape.divides_logits) return {{rows, shape.width_out}};
  const int width = shape.width_out / tensor->size();
  return {{rows, width}, tensor->index() * width, tensor->index(), tensor->size()};
}

void clear(StageDevice& device, int rows, int width, float* values) {
  device.ops().clear_floats(static_cast<std::size_t>(rows) * static_cast<std::size_t>(width),
                            values);
}

/// All ranks' facts have so many rows, whichever of them count. Probabilities may take the place of
/// the logits.
Task<void> divided_loss(StageDevice& device, const LogitsPart& part, int rows, int micro_batch,
                        const Buffer& logits, const Buffer& probabilities, TensorGroup& tensor) {
  const OwnLogits own{[&](bool alone, float* facts) {
                        if (alone) clear(device, rows, part.members + 1, facts);
                        device.tell_logits(micro_batch, part, logits.floats(), facts);
                      },
                      [&](bool alone, const float* facts, float* sums) {
                        if (alone) clear(device, rows, kLossLanes, sums);
                        device.add_exponentials(part, logits.floats(), facts,
                                                probabilities.floats(), sums);
                      }};
  const LogitSums all = co_await bring_logits_together(device.ops(), tensor, rows, own);
  device.finish_cross_entropy(micro_batch, part, all.facts.floats(), all.sums.floats(),
                              probabilities.floats());
}

/// F, of this rank's rows.
Task<Buffer> loss_of_own_rows(StageDevice& device, const StageShape& shape, int micro_batch,
                              int samples, Buffer output, TensorGroup* tensor) {
  const LogitsPart part = part_of(shape, tensor, samples);
  if (!shape.has_labels()) {
    device.mse_forward(micro_batch, part.own, output.floats());
    co_return output;
  }
  // The logits have served, unless the last layer keeps its own output.
  Buffer probabilities = output.is_shared() ? device.ops().take(numbers_of(shape, tensor)) : output;
  if (shape.divides_logits) {
    co_await divided_loss(device, part, shape.extent.rows(), micro_batch, output, probabilities,
                          *tensor);
  } else {
    device.softmax_cross_entropy_forward(micro_batch, part.own, output.floats(),
                                         probabilities.floats());
  }
  co_return probabilities;
}

/// loss_forward() of the first samples.
Task<Buffer> loss_of_samples(StageDevice& device, const StageShape& shape, int micro_batch,
                             int samples, Buffer output, RankGroups& groups) {
  Buffer kept = co_await loss_of_own_rows(device, shape, micro_batch, samples, std::move(output),
                                          groups.tensor());
  if (groups.context() != nullptr) {
    const Buffer losses =
        co_await bring_losses_together(device.ops(), *groups.context(), shape.extent.rows(),
                                       [&](float* at) { device.put_row_losses(micro_batch, at); });
    device.take_row_losses(micro_batch, samples, losses.floats());
  }
  co_return kept;
}

/// Of all ranks' parts of so many samples.
std::int64_t terms_of(const StageShape& shape, int samples) {
  const Extent all{samples, shape.whole_extent().sequence};
  return static_cast<std::int64_t>(all.words(shape.has_labels() ? 1 : shape.width_out));
}

}  // namespace

double sum_of_losses(const StageShape& shape, int samples, const float* losses) {
  const Extent& own = shape.extent;
  double sum = 0;
  for (const ChainTurn& turn : turns_of_rows(samples, own.sequence, shape.context.parts)) {
    const std::int64_t begin = std::int64_t{turn.member} * own.rows() + turn.own.begin;
    for (std::int64_t row = begin; row < begin + turn.own.count; ++row) {
      double loss = 0;
      std::memcpy(&loss, losses + row * (sizeof loss / sizeof(float)), sizeof loss);
      sum += loss;
    }
  }
  return sum;
}

double loss_terms(const StageShape& shape) {
  return static_cast<double>(terms_of(shape, shape.extent.samples));
}

Task<Buffer> loss_forward(StageDevice& device, const StageShape& shape, int micro_batch,
                          Buffer output, RankGroups& groups) {
  return loss_of_samples(device, shape, micro_batch, shape.extent.samples, std::move(output),
                         groups);
}

Task<void> note_outcome(StageDevice& device, const StageShape& shape, int micro_batch, int samples,
                        Buffer output, RankGroups& groups, RunMode mode) {
  device.note_outputs(micro_batch, part_of(shape, groups.tensor(), samples), output.floats(), mode);
  if (mode == RunMode::Predict) co_return;
  const Buffer probabilities =
      co_await loss_of_samples(device, shape, micro_batch, samples, std::move(output), groups);
}

ForwardOutcome outcome_of(StageDevice& device, const StageShape& shape, int micro_batch,
                          int samples, RunMode mode) {
  ForwardOutcome outcome = device.take_outcome(micro_batch);
  outcome.micro_batch = micro_batch;
  for (RowOutcome& row : outcome.rows)
    row.row = static_cast<std::int32_t>(row_of_all(shape.context, shape.extent.sequence, row.row));
  if (mode == RunMode::Predict) return outcome;
  outcome.loss = device.loss_sum(micro_batch);
  outcome.terms = terms_of(shape, samples);
  return outcome;
}

Buffer loss_gradient(StageDevice& device, const StageShape& shape, int micro_batch, Buffer kept,
                     double divisor, const TensorGroup* tensor) {
  const LogitsPart part = part_of(shape, tensor, shape.extent.samples);
  Buffer gradient = kept.is_shared() ? device.ops().take(numbers_of(shape, tensor)) : kept;
  const auto scale = static_cast<float>(1 / (divisor * loss_terms(shape)));
  if (shape.divides_logits) {
    device.divided_cross_entropy_backward_input(micro_batch, part, kept.floats(), scale,
                                                gradient.floats());
  } else if (shape.has_labels()) {
    device.softmax_cross_entropy_backward_input(micro_batch, part.own, kept.floats(), scale,
                                                gradient.floats());
  } else {
    device.mse_backward_input(micro_batch, part.own, kept.floats(), scale, gradient.floats());
  }
  return gradient;
}

}  // namespace pipewright::exec
