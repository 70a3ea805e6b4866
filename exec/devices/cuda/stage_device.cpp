#include "exec/devices/cuda/stage_device.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/error.hpp"
#include "exec/devices/cuda/context_elements.hpp"
#include "exec/training/stage_loss.hpp"

namespace pipewright::exec::cuda {
namespace {

/// Floats that are left of a row that is judged (exec/devices/cuda/module_api.h).
constexpr std::size_t kRowFacts = 3;

}  // namespace

StageDevice::StageDevice(Queue& queue, const StageShape& shape, std::function<void()> between,
                         RunMode mode, const OwnShard& shard, bool experts_differ)
    : queue_(queue),
      shape_(shape),
      between_(std::move(between)),
      mode_(mode),
      shard_(shard),
      experts_differ_(experts_differ),
      ops_(queue, unwritten_, between_),
      answers_(static_cast<std::size_t>(shape.micro_batches)),
      loss_sums_(answers_.size()),
      counted_rows_(answers_.size(), shape.extent.rows()),
      own_width_(shape.width_out) {
  const std::size_t count = answers_.size();
  if (shape.is_first) staged_inputs_ = Pinned<float>(queue.cuda(), count * shape.data_words());
  if (!shape.is_last) return;
  if (mode == RunMode::Predict) {
    outputs_ = Pinned<std::byte>(queue.cuda(), count * output_words() * queue.number_bytes());
    return;
  }
  staged_answers_ = Pinned<float>(queue.cuda(), count * shape.answer_words());
  facts_ = Pinned<float>(queue.cuda(), count * fact_words());
  if (shape.context.parts > 1) row_losses_ = Pinned<float>(queue.cuda(), count * loss_words());
  if (mode == RunMode::Train) return;
  const auto rows = static_cast<std::size_t>(shape.extent.rows());
  row_facts_ = Pinned<float>(queue.cuda(), count * rows * kRowFacts);
}

StageWeights& StageDevice::keep_parameters(const std::vector<Parameter*>& parameters,
                                           const OptimizerSpec& optimizer, std::uint64_t seed) {
  const bool trains = mode_ == RunMode::Train;
  parameters_ = std::make_unique<Parameters>(
      queue_, unwritten_, parameters,
      Parameters::Start{optimizer, seed, trains, shard_, experts_differ_}, between_);
  return *parameters_;
}

// --- Data ---

/// Into memory that the copy reads while the host goes on. Words of 4 bytes, whatever numbers the
/// GPU has.
void StageDevice::keep_batch(int micro_batch, const MicroBatch& batch, bool with_answers) {
  const auto place = static_cast<std::size_t>(micro_batch);
  if (batch.counted_samples >= 0)
    counted_rows_[place] = batch.counted_samples * shape_.extent.sequence;
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

void StageDevice::take_answers(int micro_batch) {
  answers(micro_batch) = uploaded(staged_answers_, micro_batch, shape_.answer_words());
}

// --- Losses ---

/// Of a row, what exec/devices/cuda/module_api.h says the kernels leave.
std::size_t StageDevice::fact_words() const { return shape_.extent.words(facts_of_row()); }

void StageDevice::enqueue_facts(int micro_batch, Buffer facts) {
  const std::size_t count = fact_words();
  queue_.copy(facts_.data() + static_cast<std::size_t>(micro_batch) * count, facts.at(),
              count * sizeof(float));
  if (shape_.context.parts > 1) latest_facts_ = std::move(facts);
}

void StageDevice::softmax_cross_entropy_forward(int micro_batch, const LossShape& shape,
                                                const float* logits, float* probabilities) {
  take_answers(micro_batch);
  Buffer facts = taken_facts();
  queue_.run(queue_.kernels().cross_entropy_forward, shape_.extent.rows(), shape.width, logits,
             answers(micro_batch).ids(), probabilities, facts.floats());
  enqueue_facts(micro_batch, std::move(facts));
}

void StageDevice::softmax_cross_entropy_backward_input(int micro_batch, const LossShape& shape,
                                                       const float* probabilities, float scale,
                                                       float* dlogits) {
  const Buffer labels = std::exchange(answers(micro_batch), Buffer());
  queue_.run(queue_.kernels().cross_entropy_backward_input, shape.rows, shape.width, probabilities,
             labels.ids(), scale, dlogits);
}

void StageDevice::tell_logits(int micro_batch, const LogitsPart& part, const float* logits,
                              float* facts) {
  take_answers(micro_batch);
  queue_.run(queue_.kernels().tell_logits, shape_.extent.rows(), part.own.width, part.first,
             part.member, part.members, logits, answers(micro_batch).ids(), facts);
}

void StageDevice::add_exponentials(const LogitsPart& part, const float* logits, const float* facts,
                                   float* exponentials, float* sums) {
  queue_.run(queue_.kernels().add_exponentials, shape_.extent.rows(), part.own.width, part.first,
             part.members, logits, facts, exponentials, sums);
}

void StageDevice::finish_cross_entropy(int micro_batch, const LogitsPart& part, const float* facts,
                                       const float* sums, float* probabilities) {
  Buffer of_rows = taken_facts();
  queue_.run(queue_.kernels().finish_cross_entropy, shape_.extent.rows(), part.own.width,
             part.members, facts, sums, probabilities, of_rows.floats());
  enqueue_facts(micro_batch, std::move(of_rows));
}

void StageDevice::divided_cross_entropy_backward_input(int micro_batch, const LogitsPart& part,
                                                       const float* probabilities, float scale,
                                                       float* dlogits) {
  const Buffer labels = std::exchange(answers(micro_batch), Buffer());
  queue_.run(queue_.kernels().divided_cross_entropy_backward_input, part.own.rows, part.own.width,
             part.first, probabilities, labels.ids(), scale, dlogits);
}

void StageDevice::mse_forward(int micro_batch, const LossShape& shape, const float* y) {
  take_answers(micro_batch);
  Buffer facts = taken_facts();
  queue_.run(queue_.kernels().mse_forward, shape_.extent.rows(), shape.width, y,
             answers(micro_batch).floats(), facts.floats());
  enqueue_facts(micro_batch, std::move(facts));
}

void StageDevice::mse_backward_input(int micro_batch, const LossShape& shape, const float* y,
                                     float scale, float* dy) {
  const Buffer targets = std::exchange(answers(micro_batch), Buffer());
  queue_.run(queue_.kernels().mse_backward_input, shape_.extent.words(shape.width), y,
             targets.floats(), scale, dy);
}

void StageDevice::put_row_losses(int micro_batch, float* at) {
  const Buffer facts = std::exchange(latest_facts_, Buffer());
  const int rows = shape_.extent.rows();
  if (queue_.site().precision != Precision::Exact)
    return queue_.run(queue_.kernels().losses_of_rows, rows, facts_of_row(), facts.floats(),
                      reinterpret_cast<double*>(at));
  queue_.finish(queue_.record(queue_.computing()), between_);
  const auto place = static_cast<std::size_t>(micro_batch);
  const float* of_row = facts_.data() + place * fact_words();
  float* const staged = row_losses_.data() + place * loss_words();
  for (int row = 0; row < rows; ++row, of_row += facts_of_row()) {
    const double loss = loss_of_row(of_row, facts_of_row());
    std::memcpy(staged + std::ptrdiff_t{2} * row, &loss, sizeof loss);
  }
  queue_.copy(at, staged, shape_.extent.words(1) * sizeof(double));
}

void StageDevice::take_row_losses(int micro_batch, int, const float* all) {
  queue_.copy(row_losses_.data() + static_cast<std::size_t>(micro_batch) * loss_words(), all,
              loss_words() * sizeof(float));
}

void StageDevice::read_losses() {
  if (facts_.size() == 0) return;
  for (std::size_t m = 0; m < loss_sums_.size(); ++m) {
    const int rows = counted_rows_[m];
    loss_sums_[m] = shape_.context.parts > 1 ? sum_of_losses(shape_, rows / shape_.extent.sequence,
                                                             row_losses_.data() + m * loss_words())
                                             : sum_of(facts_.data() + m * fact_words(), rows);
  }
}

/// The sum over rows in double, as exec/devices/cpu/kernels/loss.cpp takes it.
double StageDevice::sum_of(const float* facts, int rows) const {
  double total = 0;
  for (int r = 0; r < rows; ++r, facts += facts_of_row())
    total += loss_of_row(facts, facts_of_row());
  return total;
}

double StageDevice::loss_sum(int micro_batch) const {
  const auto& sum = loss_sums_.at(static_cast<std::size_t>(micro_batch));
  PIPEWRIGHT_ASSERT(sum.has_value(), "there is no loss before the step has ended");
  return *sum;
}

// --- Forward only ---

void StageDevice::note_outputs(int micro_batch, const LogitsPart& part, const float* outputs,
                               RunMode) {
  const auto place = static_cast<std::size_t>(micro_batch);
  own_width_ = part.own.width;
  first_column_ = part.first;
  if (mode_ == RunMode::Predict) {
    const std::size_t bytes = output_words() * queue_.number_bytes();
    return queue_.copy(outputs_.data() + place * bytes, outputs, bytes);
  }
  Buffer labels;
  if (shape_.has_labels()) labels = uploaded(staged_answers_, micro_batch, shape_.answer_words());
  const int rows = shape_.extent.rows();
  const std::size_t words = static_cast<std::size_t>(rows) * kRowFacts;
  const Buffer facts = queue_.memory().take_floats(words);
  queue_.run(queue_.kernels().judge_rows, rows, own_width_, first_column_, outputs, labels.ids(),
             facts.floats());
  queue_.copy(row_facts_.data() + place * words, facts.at(), words * sizeof(float));
}

ForwardOutcome StageDevice::take_outcome(int micro_batch) {
  const int rows = counted_rows_.at(static_cast<std::size_t>(micro_batch));
  ForwardOutcome outcome{.first_column = first_column_};
  if (mode_ == RunMode::Predict) {
    outcome.outputs = outputs_of(micro_batch, rows);
    outcome.rows = outcomes_of_rows(rows, own_width_, outcome.outputs.data(), {});
  } else {
    outcome.rows = judged_rows(micro_batch, rows);
  }
  return outcome;
}

/// As the kernel has left them.
std::vector<RowOutcome> StageDevice::judged_rows(int micro_batch, int rows) const {
  const float* facts = row_facts_.data() + static_cast<std::size_t>(micro_batch) * kRowFacts *
                                               static_cast<std::size_t>(shape_.extent.rows());
  std::vector<RowOutcome> all;
  for (int r = 0; r < rows; ++r, facts += kRowFacts)
    all.push_back({r, facts[0], facts[1] != 0.0F, facts[2] != 0.0F});
  return all;
}

std::vector<float> StageDevice::outputs_of(int micro_batch, int rows) const {
  const std::byte* const from = outputs_.data() + static_cast<std::size_t>(micro_batch) *
                                                      output_words() * queue_.number_bytes();
  std::vector<float> outputs(static_cast<std::size_t>(rows) * static_cast<std::size_t>(own_width_));
  if (queue_.number_bytes() == sizeof(float)) {
    std::memcpy(outputs.data(), from, outputs.size() * sizeof(float));
  } else {
    const auto* const numbers = reinterpret_cast<const Bfloat16*>(from);
    std::copy_n(numbers, outputs.size(), outputs.begin());
  }
  return outputs;
}

}  // namespace pipewright::exec::cuda
