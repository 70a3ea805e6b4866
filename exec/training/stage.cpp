#include "exec/training/stage.hpp"

#include <utility>

#include "core/base/error.hpp"
#include "exec/layers/stage_layers.hpp"
#include "exec/training/loss_share.hpp"
#include "exec/training/stage_loss.hpp"

namespace pipewright::exec {
TrainableStage::TrainableStage(const StageSpec& spec, std::unique_ptr<StageDevice> device)
    : device_(std::move(device)),
      shape_(shape_of(spec)),
      groups_(std::make_unique<RankGroups>(spec.place, spec.ranks, spec.numerics)),
      versions_(nullptr) {
  const LayerSite site{
      .extent = shape_.extent, .ops = &device_->ops(), .seed = spec.seed, .factory = spec.factory};
  layers_ = make_stage_layers(*spec.model, spec.first_layer, spec.end_layer, among(*groups_, site),
                              spec.recompute);
  row_gradients_ = std::make_unique<RowGradients>(layers_, *groups_, device_->ops(), shape_.extent);
  share_loss_among(spec.micro_batches);
  parameters_ = parameters_of_layers(layers_);
  for (const Parameter* p : parameters_.all) {
    parameters_.sizes.push_back(p->value.empty() ? static_cast<std::size_t>(p->start.size)
                                                 : p->value.size());
  }
  weights_ = &device_->keep_parameters(parameters_.all, spec.optimizer, spec.seed);
  keep_summands_apart();
  versions_ = WeightVersions(weights_->versions());
  in_flight_.resize(static_cast<std::size_t>(spec.micro_batches));
  for (InFlight& one : in_flight_) {
    for (const auto& layer : layers_) one.saved.push_back(layer->new_saved());
  }
}

TrainableStage::~TrainableStage() = default;

/// In exact numerics each micro-batch's part of a gradient is rounded by itself.
void TrainableStage::keep_summands_apart() {
  for (std::size_t place = 0; place < parameters_.all.size(); ++place) {
    Parameter& p = *parameters_.all[place];
    if (!p.is_of_experts) continue;
    p.next_summand = [weights = weights_, place] {
      weights->add_parts(std::span(&place, 1), StageWeights::kOfAnotherRank);
    };
  }
}

// --- Micro-batches ---

TrainableStage::InFlight& TrainableStage::in_flight(int micro_batch, Phase expected,
                                                    const char* what) {
  PIPEWRIGHT_ASSERT(0 <= micro_batch && micro_batch < static_cast<int>(in_flight_.size()),
                    std::string(what) + " of micro-batch " + std::to_string(micro_batch) +
                        ", which the step does not have");
  InFlight& one = in_flight_[static_cast<std::size_t>(micro_batch)];
  PIPEWRIGHT_ASSERT(one.phase == expected, std::string(what) + " of micro-batch " +
                                               std::to_string(micro_batch) +
                                               " out of order: F, then I, then W");
  return one;
}

void TrainableStage::set_batch(int micro_batch, const MicroBatch& batch) {
  InFlight& one = in_flight(micro_batch, Phase::Idle, "new data");
  const bool with_answers = mode_ != RunMode::Predict;
  require_fit(shape_, batch, with_answers);
  if (shape_.context.parts == 1)
    device_->keep_batch(micro_batch, batch, with_answers);
  else
    device_->keep_batch(micro_batch, own_part_of(shape_, batch), with_answers);
  one.has_batch = true;
  one.counted_samples = batch.counted_samples < 0 ? shape_.extent.samples : batch.counted_samples;
}

Task<Buffer> TrainableStage::forward_task(int micro_batch, Buffer input) {
  InFlight& one = in_flight(micro_batch, Phase::Idle, "F");
  PIPEWRIGHT_ASSERT(one.has_batch || !(is_first() || is_last()), "F before set_batch()");
  PIPEWRIGHT_ASSERT(!is_first() || !input, "the first stage takes its input from set_batch()");
  Buffer x = is_first() ? device_->input(micro_batch) : std::move(input);
  PIPEWRIGHT_ASSERT(static_cast<bool>(x), "F without its input");
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    x = co_await layers_[i]->forward(std::move(x), one.saved[i]);
    if (mode_ != RunMode::Train) let_go(one.saved[i]);
  }
  if (mode_ == RunMode::Train) one.phase = Phase::Forwarded;
  if (!is_last()) co_return x;
  if (mode_ == RunMode::Train) {
    one.loss_saved = co_await loss_forward(*device_, shape_, micro_batch, std::move(x), *groups_);
  } else {
    co_await note_outcome(*device_, shape_, micro_batch, one.counted_samples, std::move(x),
                          *groups_, mode_);
  }
  co_return Buffer();
}

Task<Buffer> TrainableStage::backward_input_task(int micro_batch, Buffer gradient) {
  InFlight& one = in_flight(micro_batch, Phase::Forwarded, "I");
  PIPEWRIGHT_ASSERT(!is_last() || !gradient, "the last stage makes its own gradient");
  Buffer dy = is_last() ? loss_gradient(*device_, shape_, micro_batch,
                                        std::exchange(one.loss_saved, Buffer()), loss_divisor_,
                                        groups_->tensor())
                        : std::move(gradient);
  PIPEWRIGHT_ASSERT(static_cast<bool>(dy), "I without its gradient");
  for (std::size_t i = layers_.size(); i-- > 0;)
    dy = co_await layers_[i]->backward_input(std::move(dy), one.saved[i], i > 0 || !is_first());
  one.phase = Phase::InputDone;
  if (is_first()) co_return Buffer();
  co_return dy;
}

Task<void> TrainableStage::backward_weight_task(int micro_batch) {
  InFlight& one = in_flight(micro_batch, Phase::InputDone, "W");
  if (gradients_are_old_) begin_gradients();
  if (divides_gradients()) make_whole_gradients();
  const Buffer of_all_rows = co_await row_gradients_->bring_together(one.saved);
  for (std::size_t i = layers_.size(); i-- > 0;) {
    co_await layers_[i]->backward_weight(one.saved[i]);
    row_gradients_->add(i, of_all_rows);
    weights_->add_parts(parameters_.of_layer[i], micro_batch);
  }
  one.phase = Phase::Idle;
  gradients_are_settled_ = false;
  ++gradient_micro_batches_;
}

// --- Forward only ---

void TrainableStage::forward_only(RunMode mode) {
  PIPEWRIGHT_ASSERT(mode != RunMode::Train && mode_ == RunMode::Train, "a stage changes its mode");
  mode_ = mode;
  weights_->forget_training();
  set_evaluating(true);
}

ForwardOutcome TrainableStage::take_outcome(int micro_batch) {
  const InFlight& one = in_flight_.at(static_cast<std::size_t>(micro_batch));
  return outcome_of(*device_, shape_, micro_batch, one.counted_samples, mode_);
}

void TrainableStage::set_evaluating(bool evaluating) {
  for (const auto& layer : layers_) layer->set_evaluating(evaluating);
}

// --- Updates ---

void TrainableStage::share_loss_among(int micro_batches) {
  loss_divisor_ = micro_batches;
  for (const auto& layer : layers_) layer->set_loss_share(1 / loss_divisor_);
}

void TrainableStage::update(int step) {
  for (const InFlight& one : in_flight_) {
    PIPEWRIGHT_ASSERT(one.phase == Phase::Idle, "an update while a micro-batch is under way");
  }
  settle_gradients();
  drop_weights();
  apply_gradients(step);
}

void TrainableStage::apply_gradients(int step) {
  weights_->update(step);
  for (const auto& layer : layers_) layer->update_statistics();
  gradients_are_old_ = true;
}

void TrainableStage::update_version(bool keep) {
  versions_.begin_next(keep);
  if (!has_gradients()) return;
  settle_gradients();
  weights_->scale(1.0F / static_cast<float>(gradient_micro_batches_), true);
  apply_gradients(updates_++);
}

std::string TrainableStage::not_finite() const {
  return mode_ == RunMode::Train ? weights_->not_finite() : std::string();
}

// --- What others want to know ---

double TrainableStage::loss() const {
  double sum = 0;
  for (int m = 0; m < static_cast<int>(in_flight_.size()); ++m) sum += loss_share(m);
  return sum;
}

double TrainableStage::loss_share(int micro_batch) const {
  return loss_share_of(loss(micro_batch), in_flight_.size());
}

double TrainableStage::loss(int micro_batch) const {
  return device_->loss_sum(micro_batch) / loss_terms(shape_);
}

std::vector<ParameterView> TrainableStage::parameters() const {
  std::vector<ParameterView> views;
  for (std::size_t i = 0; i < parameters_.all.size(); ++i) {
    const Parameter& p = *parameters_.all[i];
    views.push_back({p.name, p.value, p.gradient, p.is_copy || p.is_replicas_copy, p.is_of_experts,
                     p.slice, p.first_value, p.first_gradient, parameters_.sizes[i]});
  }
  return views;
}

std::int64_t TrainableStage::parameter_count() const {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < parameters_.all.size(); ++i) {
    const Parameter& p = *parameters_.all[i];
    if (!p.is_statistic && !p.is_copy && !p.is_replicas_copy)
      count += static_cast<std::int64_t>(parameters_.sizes[i]);
  }
  return count;
}

}  // namespace pipewright::exec
