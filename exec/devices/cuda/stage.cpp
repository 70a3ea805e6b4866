#include "exec/devices/cuda/stage.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/base/error.hpp"
#include "exec/devices/cuda/payload.hpp"
#include "exec/devices/cuda/trainable_layers.hpp"
#include "exec/training/loss_share.hpp"

namespace pipewright::exec::cuda {
namespace {

std::unique_ptr<cpu::Stage> mirror_of(const StageSpec& spec, TensorOps& ops) {
  require_layers(*spec.model);
  OptimizerSpec without_state;
  without_state.kind = OptimizerKind::Sgd;
  return std::make_unique<cpu::Stage>(
      *spec.model, spec.first_layer, spec.end_layer, spec.micro_batch_size, spec.micro_batches,
      spec.seed, without_state, cpu::StageOptions{.recompute = spec.recompute, .ops = &ops});
}

}  // namespace

Stage::Stage(Queue& queue, const StageSpec& spec, std::function<void()> between)
    : queue_(queue),
      ops_(queue),
      mirror_(mirror_of(spec, ops_)),
      parameters_(std::make_unique<Parameters>(queue, mirror_->parameter_list(), spec.optimizer,
                                               std::move(between))),
      extent_{spec.micro_batch_size, spec.model->sequence},
      loss_kind_(spec.model->loss),
      width_in_(width_in_front_of(*spec.model, spec.first_layer)),
      width_out_(width_in_front_of(*spec.model, spec.end_layer)),
      loss_divisor_(spec.micro_batches) {
  in_flight_.resize(static_cast<std::size_t>(spec.micro_batches));
  for (InFlight& one : in_flight_) {
    for (const auto& layer : layers()) one.saved.push_back(layer->new_saved());
  }
  const std::size_t count = in_flight_.size();
  if (is_first()) staged_inputs_ = Pinned<float>(queue.cuda(), count * input_words());
  if (!is_last()) return;
  staged_answers_ = Pinned<float>(queue.cuda(), count * answer_words());
  facts_ = Pinned<float>(queue.cuda(), count * facts_of_micro_batch());
}

// --- Data ---

/// Of a micro-batch: a label a row, or a target for each output.
std::size_t Stage::answer_words() const {
  return extent_.words(loss_kind_ == LossKind::SoftmaxCrossEntropy ? 1 : width_out_);
}

void Stage::begin_step(int step) {
  gradients_are_old_ = true;
  parameters_->begin_step(step);
}

/// Into memory that the copy reads while the host goes on.
void Stage::set_batch(int micro_batch, const MicroBatch& batch) {
  mirror_->set_batch(micro_batch, batch);  // looks whether it fits
  const auto place = static_cast<std::size_t>(micro_batch);
  const auto stage = [](const auto& values, float* to) {
    static_assert(sizeof(values[0]) == sizeof(float));
    std::memcpy(to, values.data(), values.size() * sizeof(float));
  };
  if (is_first()) {
    float* const to = staged_inputs_.data() + place * input_words();
    width_in_ == 0 ? stage(batch.tokens, to) : stage(batch.inputs, to);
  }
  if (is_last()) {
    float* const to = staged_answers_.data() + place * answer_words();
    loss_kind_ == LossKind::SoftmaxCrossEntropy ? stage(batch.labels, to)
                                                : stage(batch.targets, to);
  }
  at(micro_batch).has_batch = true;
}

Buffer Stage::uploaded(const Pinned<float>& staged, int micro_batch, std::size_t words) {
  Buffer buffer = queue_.memory().take_floats(words);
  queue_.copy(buffer.at(), staged.data() + static_cast<std::size_t>(micro_batch) * words,
              words * sizeof(float));
  return buffer;
}

// --- F, I, W ---

Buffer Stage::forward(int micro_batch, Buffer input) {
  InFlight& one = at(micro_batch);
  PIPEWRIGHT_ASSERT(one.has_batch || !(is_first() || is_last()), "F before set_batch()");
  Buffer x = is_first() ? uploaded(staged_inputs_, micro_batch, input_words()) : std::move(input);
  PIPEWRIGHT_ASSERT(static_cast<bool>(x), "F without its input");
  for (std::size_t i = 0; i < layers().size(); ++i)
    x = layers()[i]->forward(std::move(x), one.saved[i]);
  if (!is_last()) return x;
  forward_loss(micro_batch, std::move(x));
  return {};
}

Buffer Stage::backward_input(int micro_batch, Buffer gradient) {
  InFlight& one = at(micro_batch);
  Buffer dy = is_last() ? loss_gradient(one) : std::move(gradient);
  PIPEWRIGHT_ASSERT(static_cast<bool>(dy), "I without its gradient");
  for (std::size_t i = layers().size(); i-- > 0;)
    dy = layers()[i]->backward_input(std::move(dy), one.saved[i], i > 0 || !is_first());
  return is_first() ? Buffer() : dy;
}

void Stage::backward_weight(int micro_batch) {
  InFlight& one = at(micro_batch);
  if (gradients_are_old_) begin_gradients();
  const bool is_exact = queue_.site().precision == Precision::Exact;
  for (std::size_t i = layers().size(); i-- > 0;) {
    layers()[i]->backward_weight(one.saved[i]);
    if (is_exact) parameters_->add_parts(mirror_->parameters_by_layer()[i]);
  }
  is_settled_ = false;
  ++gradient_micro_batches_;
}

// --- The loss ---

/// Of a row, what exec/devices/cuda/module_api.h says the kernels leave.
std::size_t Stage::facts_of_micro_batch() const {
  const auto rows = static_cast<std::size_t>(extent_.rows());
  return loss_kind_ == LossKind::SoftmaxCrossEntropy ? 3 * rows : rows;
}

void Stage::forward_loss(int micro_batch, Buffer output) {
  InFlight& one = at(micro_batch);
  one.answers = uploaded(staged_answers_, micro_batch, answer_words());
  const std::size_t count = facts_of_micro_batch();
  const Buffer facts = queue_.memory().take_floats(count);
  const int rows = extent_.rows();
  if (loss_kind_ == LossKind::SoftmaxCrossEntropy) {
    Buffer probabilities = output.is_shared() ? queue_.memory().take(output.bytes()) : output;
    queue_.run(queue_.kernels().cross_entropy_forward, rows, width_out_, output.floats(),
               one.answers.ids(), probabilities.floats(), facts.floats());
    one.loss_saved = std::move(probabilities);
  } else {
    queue_.run(queue_.kernels().mse_forward, rows, width_out_, output.floats(),
               one.answers.floats(), facts.floats());
    one.loss_saved = std::move(output);
  }
  queue_.copy(facts_.data() + static_cast<std::size_t>(micro_batch) * count, facts.at(),
              count * sizeof(float));
}

Buffer Stage::loss_gradient(InFlight& one) {
  const Buffer kept = std::exchange(one.loss_saved, Buffer());
  const Buffer answers = std::exchange(one.answers, Buffer());
  Buffer gradient = kept.is_shared() ? queue_.memory().take(kept.bytes()) : kept;
  const int rows = extent_.rows();
  const std::size_t words = extent_.words(width_out_);
  if (loss_kind_ == LossKind::SoftmaxCrossEntropy) {
    const double scale = 1 / (loss_divisor_ * rows);
    queue_.run(queue_.kernels().cross_entropy_backward_input, rows, width_out_, kept.floats(),
               answers.ids(), static_cast<float>(scale), gradient.floats());
  } else {
    const double scale = 1 / (loss_divisor_ * static_cast<double>(words));
    queue_.run(queue_.kernels().mse_backward_input, words, kept.floats(), answers.floats(),
               static_cast<float>(scale), gradient.floats());
  }
  return gradient;
}

/// The sum over rows in double, as exec/devices/cpu/kernels/loss.cpp takes it, and its mean.
double Stage::loss_of(const float* facts) const {
  const int rows = extent_.rows();
  double total = 0;
  if (loss_kind_ == LossKind::SoftmaxCrossEntropy) {
    for (int r = 0; r < rows; ++r, facts += 3) {
      total += std::log(static_cast<double>(facts[1])) +
               (static_cast<double>(facts[0]) - static_cast<double>(facts[2]));
    }
    return total / rows;
  }
  for (int r = 0; r < rows; ++r) total += static_cast<double>(facts[r]);
  return total / static_cast<double>(extent_.words(width_out_));
}

double Stage::loss_share(int micro_batch) const {
  const InFlight& one = in_flight_.at(static_cast<std::size_t>(micro_batch));
  PIPEWRIGHT_ASSERT(one.loss.has_value(), "there is no loss before the step has ended");
  return loss_share_of(*one.loss, in_flight_.size());
}

// --- Gradients and the end of a step ---

void Stage::begin_gradients() {
  parameters_->clear();
  gradients_are_old_ = false;
  is_settled_ = true;
  gradient_micro_batches_ = 0;
}

void Stage::settle_gradients() {
  if (is_settled_) return;
  parameters_->settle();
  is_settled_ = true;
}

void Stage::update() {
  settle_gradients();
  parameters_->update();
  gradients_are_old_ = true;
}

SquareSum Stage::squares() {
  settle_gradients();
  return parameters_->squares();
}

GradientPart Stage::gradient_part() {
  if (gradients_are_old_ || gradient_micro_batches_ == 0) return {};
  std::vector<std::size_t> all(parameters_->size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  GradientPart part = parameters_->part(all);
  part.micro_batches = gradient_micro_batches_;
  return part;
}

void Stage::set_gradients(std::span<const GradientPart* const> parts) {
  begin_gradients();
  for (std::size_t i = 0; i < parameters_->size(); ++i) {
    Parameters::Summands summands;
    for (const GradientPart* part : parts) {
      if (!part->gradients.empty()) summands.gradients.push_back(&part->gradients[i]);
      if (!part->sums.empty()) summands.sums.push_back(&part->sums[i]);
    }
    parameters_->set(i, summands);
  }
  for (const GradientPart* part : parts) gradient_micro_batches_ += part->micro_batches;
  is_settled_ = false;
}

/// All gradients as one array, which the transport changes in place, after what is on the computing
/// stream; zeros where nothing went in.
PartPtr Stage::part_on_device() {
  if (!sums_on_gpu_) return nullptr;
  if (gradients_are_old_ || gradient_micro_batches_ == 0) begin_gradients();
  return std::make_shared<DevicePart>(parameters_->gradients(), queue_.record(queue_.computing()));
}

/// The sum lies where the gradients do.
bool Stage::takes_from_device(const std::vector<PartPtr>& parts) {
  const auto* sum = dynamic_cast<const DevicePart*>(parts.front().get());
  if (sum == nullptr) return false;
  queue_.wait(queue_.computing(), sum->ready);
  return true;
}

std::size_t Stage::table() const {
  const auto& all = mirror_->parameter_list();
  const auto found = std::find_if(all.begin(), all.end(), [](const auto* p) { return p->is_tied; });
  PIPEWRIGHT_ASSERT(found != all.end(), "a stage without a tied table");
  return static_cast<std::size_t>(found - all.begin());
}

GradientPart Stage::table_part() {
  const std::size_t places[] = {table()};
  return parameters_->part(places);
}

void Stage::set_table(std::span<const GradientPart* const> parts) {
  Parameters::Summands summands;
  for (const GradientPart* part : parts) {
    for (const AlignedFloats& one : part->gradients) summands.gradients.push_back(&one);
    for (const FixedPointSums& one : part->sums) summands.sums.push_back(&one);
  }
  parameters_->set(table(), summands);
  is_settled_ = false;
}

void Stage::end_step() {
  settle_gradients();
  parameters_->ask_for_health();
}

void Stage::read_step() {
  parameters_->read_health();
  if (!is_last()) return;
  for (std::size_t m = 0; m < in_flight_.size(); ++m)
    in_flight_[m].loss = loss_of(facts_.data() + m * facts_of_micro_batch());
}

}  // namespace pipewright::exec::cuda
