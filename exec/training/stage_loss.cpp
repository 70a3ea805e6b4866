#include "exec/training/stage_loss.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "exec/layers/divided/divided_loss.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec {
namespace {

/// Of the last layer's output, or of what a rank has of it.
std::size_t numbers_of(const StageShape& shape, const TensorGroup* tensor) {
  const int parts = shape.divides_logits ? tensor->size() : 1;
  return shape.extent.words(shape.width_out / parts);
}

LogitsPart part_of(const StageShape& shape, const TensorGroup& tensor) {
  const int width = shape.width_out / tensor.size();
  return {{shape.extent.rows(), width}, tensor.index() * width, tensor.index(), tensor.size()};
}

void clear(int rows, int width, float* values) {
  std::fill_n(values, static_cast<std::size_t>(rows) * static_cast<std::size_t>(width), 0.0F);
}

/// Probabilities may take the place of the logits.
Task<void> divided_loss(StageDevice& device, const LogitsPart& part, int micro_batch,
                        const Buffer& logits, const Buffer& probabilities, TensorGroup& tensor) {
  const int rows = part.own.rows;
  const OwnLogits own{[&](bool alone, float* facts) {
                        if (alone) clear(rows, part.members + 1, facts);
                        device.tell_logits(micro_batch, part, logits.floats(), facts);
                      },
                      [&](bool alone, const float* facts, float* sums) {
                        if (alone) clear(rows, kLossLanes, sums);
                        device.add_exponentials(part, logits.floats(), facts,
                                                probabilities.floats(), sums);
                      }};
  const LogitSums all = co_await bring_logits_together(device.ops(), tensor, rows, own);
  device.finish_cross_entropy(micro_batch, part, all.facts.floats(), all.sums.floats(),
                              probabilities.floats());
}

/// Of all ranks' rows, member by member, in the order of the sequences, as a single rank adds them.
double sum_of_losses(const StageShape& shape, const Buffer& losses) {
  const Extent& own = shape.extent;
  double sum = 0;
  for (const ChainTurn& turn : turns_of_rows(own.samples, own.sequence, shape.context.parts)) {
    const std::int64_t begin = std::int64_t{turn.member} * own.rows() + turn.own.begin;
    for (std::int64_t row = begin; row < begin + turn.own.count; ++row) {
      double loss = 0;
      std::memcpy(&loss, losses.floats() + row * (sizeof loss / sizeof(float)), sizeof loss);
      sum += loss;
    }
  }
  return sum;
}

/// F, of this rank's rows.
Task<Buffer> loss_of_own_rows(StageDevice& device, const StageShape& shape, int micro_batch,
                              Buffer output, TensorGroup* tensor) {
  const LossShape of{shape.extent.rows(), shape.width_out};
  if (!shape.has_labels()) {
    device.mse_forward(micro_batch, of, output.floats());
    co_return output;
  }
  // The logits have served, unless the last layer keeps its own output.
  Buffer probabilities = output.is_shared() ? device.ops().take(numbers_of(shape, tensor)) : output;
  if (shape.divides_logits) {
    const LogitsPart part = part_of(shape, *tensor);
    co_await divided_loss(device, part, micro_batch, output, probabilities, *tensor);
  } else {
    device.softmax_cross_entropy_forward(micro_batch, of, output.floats(), probabilities.floats());
  }
  co_return probabilities;
}

}  // namespace

double loss_terms(const StageShape& shape) {
  const Extent all = shape.whole_extent();
  return shape.has_labels() ? all.rows() : static_cast<double>(all.words(shape.width_out));
}

Task<Buffer> loss_forward(StageDevice& device, const StageShape& shape, int micro_batch,
                          Buffer output, RankGroups& groups) {
  Buffer kept =
      co_await loss_of_own_rows(device, shape, micro_batch, std::move(output), groups.tensor());
  if (groups.context() != nullptr) {
    const Buffer losses = co_await bring_losses_together(
        device.ops(), *groups.context(), shape.extent.rows(), device.row_losses(micro_batch));
    device.set_loss_sum(micro_batch, sum_of_losses(shape, losses));
  }
  co_return kept;
}

Buffer loss_gradient(StageDevice& device, const StageShape& shape, int micro_batch, Buffer kept,
                     double divisor, const TensorGroup* tensor) {
  const LossShape of{shape.extent.rows(), shape.width_out};
  Buffer gradient = kept.is_shared() ? device.ops().take(numbers_of(shape, tensor)) : kept;
  const auto scale = static_cast<float>(1 / (divisor * loss_terms(shape)));
  if (shape.divides_logits) {
    device.divided_cross_entropy_backward_input(micro_batch, part_of(shape, *tensor), kept.floats(),
                                                scale, gradient.floats());
  } else if (shape.has_labels()) {
    device.softmax_cross_entropy_backward_input(micro_batch, of, kept.floats(), scale,
                                                gradient.floats());
  } else {
    device.mse_backward_input(micro_batch, of, kept.floats(), scale, gradient.floats());
  }
  return gradient;
}

}  // namespace pipewright::exec
