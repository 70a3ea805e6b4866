#include "exec/devices/cuda/stage_device.hpp"

#include <cmath>
#include <cstring>
#include <utility>

#include "core/base/error.hpp"

namespace pipewright::exec::cuda {

StageDevice::StageDevice(Queue& queue, const StageShape& shape, std::function<void()> between)
    : queue_(queue),
      shape_(shape),
      between_(std::move(between)),
      ops_(queue, unwritten_),
      answers_(static_cast<std::size_t>(shape.micro_batches)),
      loss_sums_(answers_.size()) {
  const std::size_t count = answers_.size();
  if (shape.is_first) staged_inputs_ = Pinned<float>(queue.cuda(), count * shape.data_words());
  if (!shape.is_last) return;
  staged_answers_ = Pinned<float>(queue.cuda(), count * shape.answer_words());
  facts_ = Pinned<float>(queue.cuda(), count * fact_words());
}

StageWeights& StageDevice::keep_parameters(const std::vector<Parameter*>& parameters,
                                           const OptimizerSpec& optimizer, std::uint64_t seed) {
  parameters_ = std::make_unique<Parameters>(queue_, unwritten_, parameters,
                                             Parameters::Start{optimizer, seed}, between_);
  return *parameters_;
}

// --- Data ---

/// Into memory that the copy reads while the host goes on. Words of 4 bytes, whatever numbers the
/// GPU has.
void StageDevice::keep_batch(int micro_batch, const MicroBatch& batch, bool with_answers) {
  const auto place = static_cast<std::size_t>(micro_batch);
  const auto stage = [](const auto& values, float* to) {
    static_assert(sizeof(values[0]) == sizeof(float));
    std::memcpy(to, values.data(), values.size() * sizeof(float));
  };
  if (shape_.is_first) {
    float* const to = staged_inputs_.data() + place * shape_.data_words();
    shape_.width_in == 0 ? stage(batch.tokens, to) : stage(batch.inputs, to);
  }
  if (shape_.is_last && with_answers) {
    float* const to = staged_answers_.data() + place * shape_.answer_words();
    shape_.has_labels() ? stage(batch.labels, to) : stage(batch.targets, to);
  }
}

Buffer StageDevice::uploaded(const Pinned<float>& staged, int micro_batch, std::size_t words) {
  Buffer buffer = queue_.memory().take_floats(words);
  queue_.copy(buffer.at(), staged.data() + static_cast<std::size_t>(micro_batch) * words,
              words * sizeof(float));
  return buffer;
}

Buffer StageDevice::input(int micro_batch) {
  Buffer words = uploaded(staged_inputs_, micro_batch, shape_.data_words());
  if (shape_.width_in == 0 || queue_.number_bytes() == sizeof(float)) return words;
  Buffer numbers = ops_.take(shape_.data_words());
  queue_.run(queue_.kernels().round, shape_.data_words(), words.floats(), numbers.at());
  return numbers;
}

// --- Losses ---

/// Of a row, what exec/devices/cuda/module_api.h says the kernels leave.
std::size_t StageDevice::fact_words() const {
  const auto rows = static_cast<std::size_t>(shape_.extent.rows());
  return shape_.has_labels() ? 3 * rows : rows;
}

void StageDevice::enqueue_facts(int micro_batch, const Buffer& facts) {
  const std::size_t count = fact_words();
  queue_.copy(facts_.data() + static_cast<std::size_t>(micro_batch) * count, facts.at(),
              count * sizeof(float));
}

void StageDevice::softmax_cross_entropy_forward(int micro_batch, const LossShape& shape,
                                                const float* logits, float* probabilities) {
  answers(micro_batch) = uploaded(staged_answers_, micro_batch, shape_.answer_words());
  const Buffer facts = taken_facts();
  queue_.run(queue_.kernels().cross_entropy_forward, shape.rows, shape.width, logits,
             answers(micro_batch).ids(), probabilities, facts.floats());
  enqueue_facts(micro_batch, facts);
}

void StageDevice::softmax_cross_entropy_backward_input(int micro_batch, const LossShape& shape,
                                                       const float* probabilities, float scale,
                                                       float* dlogits) {
  const Buffer labels = std::exchange(answers(micro_batch), Buffer());
  queue_.run(queue_.kernels().cross_entropy_backward_input, shape.rows, shape.width, probabilities,
             labels.ids(), scale, dlogits);
}

void StageDevice::mse_forward(int micro_batch, const LossShape& shape, const float* y) {
  answers(micro_batch) = uploaded(staged_answers_, micro_batch, shape_.answer_words());
  const Buffer facts = taken_facts();
  queue_.run(queue_.kernels().mse_forward, shape.rows, shape.width, y,
             answers(micro_batch).floats(), facts.floats());
  enqueue_facts(micro_batch, facts);
}

void StageDevice::mse_backward_input(int micro_batch, const LossShape& shape, const float* y,
                                     float scale, float* dy) {
  const Buffer targets = std::exchange(answers(micro_batch), Buffer());
  queue_.run(queue_.kernels().mse_backward_input, shape_.extent.words(shape.width), y,
             targets.floats(), scale, dy);
}

void StageDevice::read_losses() {
  if (!shape_.is_last) return;
  for (std::size_t m = 0; m < loss_sums_.size(); ++m)
    loss_sums_[m] = sum_of(facts_.data() + m * fact_words());
}

/// The sum over rows in double, as exec/devices/cpu/kernels/loss.cpp takes it.
double StageDevice::sum_of(const float* facts) const {
  const int rows = shape_.extent.rows();
  double total = 0;
  for (int r = 0; r < rows; ++r) {
    if (!shape_.has_labels()) {
      total += static_cast<double>(facts[r]);
      continue;
    }
    const float* const row = facts + static_cast<std::ptrdiff_t>(r) * 3;
    total += std::log(static_cast<double>(row[1])) +
             (static_cast<double>(row[0]) - static_cast<double>(row[2]));
  }
  return total;
}

double StageDevice::loss_sum(int micro_batch) const {
  const auto& sum = loss_sums_.at(static_cast<std::size_t>(micro_batch));
  PIPEWRIGHT_ASSERT(sum.has_value(), "there is no loss before the step has ended");
  return *sum;
}

}  // namespace pipewright::exec::cuda
