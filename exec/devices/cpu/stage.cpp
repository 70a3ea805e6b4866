#include "exec/devices/cpu/stage.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "exec/checkpoint/checkpoint.hpp"
#include "exec/devices/cpu/kernels/finite.hpp"
#include "exec/devices/cpu/shard.hpp"
#include "exec/layers/ops.hpp"
#include "exec/layers/parameters.hpp"
#include "exec/layers/stage_layers.hpp"
#include "exec/training/loss_share.hpp"

namespace pipewright::exec::cpu {
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

/// Vocabulary of the embedding that the chain begins with, 0 if it begins with something else.
int leading_vocabulary(const Layer& layer) {
  if (layer.kind == LayerKind::Embedding) return layer.vocabulary;
  return layer.inner.empty() ? 0 : leading_vocabulary(layer.inner.front());
}

}  // namespace

Stage::Stage(const Model& model, int first_layer, int end_layer, int micro_batch_size,
             int micro_batches, std::uint64_t seed, const OptimizerSpec& optimizer,
             const StageOptions& options)
    : pool_(std::make_unique<BufferPool>()),
      ops_(std::make_unique<HostOps>(*pool_, options.numerics)),
      extent_{micro_batch_size, model.sequence},
      loss_kind_(model.loss),
      is_first_(first_layer == 0),
      is_last_(end_layer == static_cast<int>(model.layers.size())) {
  PIPEWRIGHT_ASSERT(0 <= first_layer && first_layer <= end_layer &&
                        end_layer <= static_cast<int>(model.layers.size()),
                    "a stage's layers lie outside the model");
  PIPEWRIGHT_ASSERT(first_layer < end_layer || (is_last_ && !is_first_),
                    "only the loss may be a stage without layers");
  PIPEWRIGHT_ASSERT(micro_batch_size > 0 && micro_batches > 0 && model.sequence > 0,
                    "a stage needs at least one row and one micro-batch");
  width_in_ = width_in_front_of(model, first_layer);
  width_out_ = width_in_front_of(model, end_layer);
  if (is_first_) vocabulary_ = leading_vocabulary(model.layers.front());

  layers_ = make_stage_layers(model, first_layer, end_layer,
                              {.extent = extent_,
                               .ops = options.ops != nullptr ? options.ops : ops_.get(),
                               .seed = seed,
                               .factory = options.layers},
                              options.recompute);
  collect_parameters();
  for (Parameter* p : parameters_) allocate(*p, seed);
  if (options.numerics == Numerics::Exact) {
    for (const Parameter* p : parameters_) sums_.emplace_back(p->value.size());
  }
  optimizer_ = std::make_unique<Optimizer>(optimizer, weights_of(parameters_));
  optimizer_spec_ = optimizer;
  stash_ = std::make_unique<WeightStash>(parameters_);
  loss_divisor_ = micro_batches;

  in_flight_.resize(static_cast<std::size_t>(micro_batches));
  for (InFlight& one : in_flight_) {
    for (const auto& layer : layers_) one.saved.push_back(layer->new_saved());
  }
}

Stage::~Stage() = default;

void Stage::collect_parameters() {
  for (const auto& layer : layers_) {
    std::vector<Parameter*> own;
    layer->collect(own);
    auto& indices = parameters_of_layer_.emplace_back();
    for (Parameter* p : own) {
      const auto at = std::find(parameters_.begin(), parameters_.end(), p);
      indices.push_back(static_cast<std::size_t>(at - parameters_.begin()));
      if (at == parameters_.end()) {
        parameters_.push_back(p);
      } else {
        shared_table_.reset();  // both of its layers are here
        continue;
      }
      if (p->is_tied) shared_table_ = indices.back();
    }
  }
}

void Stage::forward_only(RunMode mode) {
  PIPEWRIGHT_ASSERT(mode != RunMode::Train && mode_ == RunMode::Train, "a stage changes its mode");
  mode_ = mode;
  OptimizerSpec without_state;
  without_state.kind = OptimizerKind::Sgd;
  optimizer_ = std::make_unique<Optimizer>(without_state, weights_of(parameters_));
  for (Parameter* p : parameters_) AlignedFloats().swap(p->gradient);
  sums_.clear();
  set_evaluating(true);
}

ForwardOutcome Stage::take_outcome(int micro_batch) {
  return std::exchange(in_flight_.at(static_cast<std::size_t>(micro_batch)).outcome, {});
}

Stage::InFlight& Stage::in_flight(int micro_batch, Phase expected, const char* what) {
  PIPEWRIGHT_ASSERT(0 <= micro_batch && micro_batch < static_cast<int>(in_flight_.size()),
                    std::string(what) + " of micro-batch " + std::to_string(micro_batch) +
                        ", which the step does not have");
  InFlight& one = in_flight_[static_cast<std::size_t>(micro_batch)];
  PIPEWRIGHT_ASSERT(one.phase == expected, std::string(what) + " of micro-batch " +
                                               std::to_string(micro_batch) +
                                               " out of order: F, then I, then W");
  return one;
}

void Stage::set_batch(int micro_batch, const MicroBatch& batch) {
  InFlight& one = in_flight(micro_batch, Phase::Idle, "new data");
  const auto rows = static_cast<std::size_t>(extent_.rows());
  if (is_first_ && width_in_ == 0) {
    check_ids(batch.tokens, rows, vocabulary_, "tokens");
    one.batch.tokens = batch.tokens;
  } else if (is_first_) {
    check_floats(batch.inputs, extent_.words(width_in_), "inputs");
    one.batch.inputs = batch.inputs;
  }
  one.batch.counted_samples = batch.counted_samples;
  const bool answers = is_last_ && mode_ != RunMode::Predict;
  if (answers && loss_kind_ == LossKind::SoftmaxCrossEntropy) {
    check_ids(batch.labels, rows, width_out_, "labels");
    one.batch.labels = batch.labels;
  } else if (answers) {
    check_floats(batch.targets, extent_.words(width_out_), "targets");
    one.batch.targets = batch.targets;
  }
  one.has_batch = true;
}

std::vector<float> Stage::forward(int micro_batch, std::vector<float> input) {
  InFlight& one = in_flight(micro_batch, Phase::Idle, "F");
  PIPEWRIGHT_ASSERT(one.has_batch || !(is_first_ || is_last_), "F before set_batch()");
  Buffer x = is_first_ ? first_input(one, input) : received(std::move(input), input_floats());
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    x = layers_[i]->forward(std::move(x), one.saved[i]);
    if (mode_ != RunMode::Train) let_go(one.saved[i]);
  }
  if (mode_ != RunMode::Train) {
    if (!is_last_) return message(x, output_floats());
    forward_outcome(one, std::move(x));
    return {};
  }
  one.phase = Phase::Forwarded;
  if (!is_last_) return message(x, output_floats());
  forward_loss(one, std::move(x));
  return {};
}

std::vector<float> Stage::backward_input(int micro_batch, std::vector<float> gradient) {
  InFlight& one = in_flight(micro_batch, Phase::Forwarded, "I");
  PIPEWRIGHT_ASSERT(!is_last_ || gradient.empty(), "the last stage makes its own gradient");
  Buffer dy = is_last_ ? loss_gradient(one) : received(std::move(gradient), output_floats());
  for (std::size_t i = layers_.size(); i-- > 0;) {
    dy = layers_[i]->backward_input(std::move(dy), one.saved[i], i > 0 || !is_first_);
  }
  one.phase = Phase::InputDone;
  return is_first_ ? std::vector<float>() : message(dy, input_floats());
}

void Stage::backward_weight(int micro_batch) {
  InFlight& one = in_flight(micro_batch, Phase::InputDone, "W");
  if (gradients_are_old_) begin_gradients();
  for (std::size_t i = layers_.size(); i-- > 0;) {
    layers_[i]->backward_weight(one.saved[i]);
    if (!sums_.empty()) add_parts(i, micro_batch);
  }
  one.phase = Phase::Idle;
  ++gradient_micro_batches_;
}

void Stage::set_evaluating(bool evaluating) {
  for (const auto& layer : layers_) layer->set_evaluating(evaluating);
}

void Stage::update(int step) {
  for (const InFlight& one : in_flight_) {
    PIPEWRIGHT_ASSERT(one.phase == Phase::Idle, "an update while a micro-batch is under way");
  }
  settle_gradients();
  optimizer_->update(step);
  for (const auto& layer : layers_) layer->update_statistics();
  gradients_are_old_ = true;
}

/// Moves a layer's part of the gradients to the sums; the next micro-batch's part begins with 0.
void Stage::add_parts(std::size_t layer, int micro_batch) {
  for (const std::size_t i : parameters_of_layer_[layer]) {
    Parameter& p = *parameters_[i];
    if (!sums_[i].add(p.gradient)) {
      note_not_finite("the gradient of \"" + p.name + "\" is not a number below 4e12 after m" +
                      std::to_string(micro_batch));
      sums_[i].clear();
    }
    std::fill(p.gradient.begin(), p.gradient.end(), 0.0F);
  }
}

void Stage::note_not_finite(const std::string& clause) {
  if (not_finite_.empty()) not_finite_ = clause;
}

std::string Stage::not_finite() const {
  if (!not_finite_.empty() || mode_ != RunMode::Train) return not_finite_;
  for (const Parameter* p : parameters_) {
    if (!all_finite(p->gradient))
      return "the gradient of \"" + p->name + "\" is not a finite number";
  }
  std::size_t trained = 0;  // in the optimizer's list
  for (const Parameter* p : parameters_) {
    if (!all_finite(p->value)) return "\"" + p->name + "\" is not a finite number any more";
    if (p->is_statistic) continue;
    for (const auto& slot : optimizer_->slots_of(trained++)) {
      if (!all_finite(slot.values))
        return "the optimizer's " + std::string(slot.name) + " of \"" + p->name +
               "\" is not a finite number";
    }
  }
  return {};
}

void Stage::settle_gradients() {
  if (sums_are_settled_) return;
  for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i].round_to(parameters_[i]->gradient);
  sums_are_settled_ = true;
}

SquareSum Stage::squares() {
  settle_gradients();
  SquareSum sum;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter* const p = parameters_[i];
    if (p->is_statistic || p->is_copy) continue;
    std::span<const float> own(p->gradient);
    if (is_sharded()) own = own.subspan(own_ranges_[i].begin, own_ranges_[i].size());
    if (sum.add(own)) continue;
    note_not_finite("the gradient of \"" + p->name +
                    "\" is not a number below 2e12, and cannot be clipped");
    return {};
  }
  return sum;
}

void Stage::scale_gradients(float factor) {
  if (factor == 1.0F) return;
  for (Parameter* p : parameters_) {
    if (p->is_statistic) continue;
    for (float& g : p->gradient) g *= factor;
  }
}

// --- Weight versions ---

void Stage::begin_versions() {
  PIPEWRIGHT_ASSERT(stash_->kept() == 0, "a step ended with old weights still kept");
  version_ = version_in_use_ = 0;
}

void Stage::use_version(int version) {
  if (version == version_in_use_) return;
  if (version_in_use_ != version_) stash_->exchange(version_in_use_);
  version_in_use_ = version_;
  if (version == version_) return;
  stash_->exchange(version);
  version_in_use_ = version;
}

void Stage::update_version(bool keep) {
  use_version(version_);
  if (keep) stash_->keep(version_);
  version_in_use_ = ++version_;
  peak_versions_ = std::max(peak_versions_, live_versions());
  if (gradients_are_old_ || gradient_micro_batches_ == 0) return;
  settle_gradients();
  const float share = 1.0F / static_cast<float>(gradient_micro_batches_);
  for (Parameter* p : parameters_) {
    for (float& g : p->gradient) g *= share;
  }
  optimizer_->update(updates_++);
  for (const auto& layer : layers_) layer->update_statistics();
  gradients_are_old_ = true;
}

void Stage::drop_version(int version) {
  if (version == version_) return;
  use_version(version_);
  stash_->drop(version);
}

double Stage::loss() const {
  double sum = 0;
  for (int m = 0; m < static_cast<int>(in_flight_.size()); ++m) sum += loss_share(m);
  return sum;
}

double Stage::loss_share(int micro_batch) const {
  return loss_share_of(loss(micro_batch), in_flight_.size());
}

double Stage::loss(int micro_batch) const {
  const InFlight& one = in_flight_.at(static_cast<std::size_t>(micro_batch));
  PIPEWRIGHT_ASSERT(one.has_loss, "there is no loss before the last stage's F");
  return one.loss;
}

std::vector<ParameterView> Stage::parameters() const {
  std::vector<ParameterView> views;
  for (const Parameter* p : parameters_)
    views.push_back({p->name, p->value, p->gradient, p->is_copy});
  return views;
}

std::vector<StateView> Stage::state() {
  std::vector<StateView> views;
  std::size_t trained = 0;  // in the optimizer's list
  for (Parameter* p : parameters_) {
    const auto total = static_cast<std::int64_t>(p->value.size());
    views.push_back({p->name, kValueSlot, 0, total, false, p->value, p->is_copy});
    if (p->is_statistic) continue;
    for (const auto& slot : optimizer_->slots_of(trained++))
      views.push_back(
          {p->name, slot.name, slot.first, total, !own_ranges_.empty(), slot.values, p->is_copy});
  }
  return views;
}

std::int64_t Stage::state_bytes() const {
  std::size_t bytes = 0, weights = 0;
  for (const Parameter* p : parameters_) {
    weights += p->value.size() * sizeof(float);
    bytes += p->gradient.size() * sizeof(float);
  }
  for (const FixedPointSums& sums : sums_) bytes += 2 * sums.high().size() * sizeof(std::int64_t);
  bytes += weights * static_cast<std::size_t>(live_versions());
  return static_cast<std::int64_t>(bytes) + optimizer_->state_bytes();
}

std::int64_t Stage::parameter_count() const {
  std::int64_t count = 0;
  for (const Parameter* p : parameters_) {
    if (!p->is_statistic && !p->is_copy) count += static_cast<std::int64_t>(p->value.size());
  }
  return count;
}

Buffer Stage::first_input(InFlight& one, std::vector<float>& input) {
  PIPEWRIGHT_ASSERT(input.empty(), "the first stage takes its input from set_batch()");
  if (width_in_ == 0) {
    Buffer ids = pool_->take(one.batch.tokens.size());
    std::copy(one.batch.tokens.begin(), one.batch.tokens.end(), ids.ids());
    return ids;
  }
  Buffer x = pool_->take(one.batch.inputs.size());
  std::copy(one.batch.inputs.begin(), one.batch.inputs.end(), x.floats());
  return x;
}

void Stage::forward_loss(InFlight& one, Buffer output) {
  const LossShape shape{extent_.rows(), width_out_};
  if (loss_kind_ == LossKind::SoftmaxCrossEntropy) {
    // The logits have served, unless the last layer keeps its own output.
    Buffer probabilities = output.is_shared() ? pool_->take(output.words()) : output;
    one.loss = softmax_cross_entropy_forward(shape, output.floats(), one.batch.labels.data(),
                                             probabilities.floats()) /
               extent_.rows();
    one.loss_saved = std::move(probabilities);
  } else {
    one.loss = mse_forward(shape, output.floats(), one.batch.targets.data()) /
               static_cast<double>(extent_.words(width_out_));
    one.loss_saved = std::move(output);
  }
  one.has_loss = true;
}

void Stage::forward_outcome(InFlight& one, Buffer output) {
  const int counted = one.batch.counted_samples;
  // The logits have served; nobody else holds them.
  OutcomeOf of{.loss = loss_kind_,
               .counted = counted < 0 ? extent_.rows() : counted * extent_.sequence,
               .width = width_out_,
               .outputs = output.floats(),
               .labels = one.batch.labels.data(),
               .targets = one.batch.targets.data(),
               .scratch = output.floats()};
  one.outcome = mode_ == RunMode::Predict ? predicted(of) : evaluated(of);
}

Buffer Stage::loss_gradient(InFlight& one) {
  const LossShape shape{extent_.rows(), width_out_};
  const Buffer kept = std::exchange(one.loss_saved, Buffer());
  Buffer gradient = kept.is_shared() ? pool_->take(kept.words()) : kept;
  if (loss_kind_ == LossKind::SoftmaxCrossEntropy) {
    const double scale = 1 / (loss_divisor_ * extent_.rows());
    softmax_cross_entropy_backward_input(shape, kept.floats(), one.batch.labels.data(),
                                         static_cast<float>(scale), gradient.floats());
  } else {
    const double scale = 1 / (loss_divisor_ * static_cast<double>(extent_.words(width_out_)));
    mse_backward_input(shape, kept.floats(), one.batch.targets.data(), static_cast<float>(scale),
                       gradient.floats());
  }
  return gradient;
}

void Stage::begin_gradients() {
  for (Parameter* p : parameters_) std::fill(p->gradient.begin(), p->gradient.end(), 0.0F);
  for (FixedPointSums& sums : sums_) sums.clear();
  sums_are_settled_ = sums_.empty();
  gradients_are_old_ = false;
  gradient_micro_batches_ = 0;
}

std::vector<float> Stage::message(const Buffer& buffer, std::size_t floats) {
  PIPEWRIGHT_ASSERT(buffer.words() == floats, "a stage's result has the wrong size");
  std::vector<float> sent;
  if (!spare_messages_.empty()) {
    sent = std::move(spare_messages_.back());
    spare_messages_.pop_back();
  }
  sent.assign(buffer.floats(), buffer.floats() + floats);
  return sent;
}

Buffer Stage::received(std::vector<float> message, std::size_t floats) {
  PIPEWRIGHT_ASSERT(message.size() == floats,
                    "a stage was given a message of " + std::to_string(message.size()) +
                        " floats where " + std::to_string(floats) + " belong");
  Buffer buffer = pool_->take(floats);
  std::copy(message.begin(), message.end(), buffer.floats());
  // A stage in the middle sends as many as it receives, so this neither grows nor runs dry there;
  // the last stage, or an unusual schedule, must not pile them up.
  if (spare_messages_.size() < in_flight_.size()) spare_messages_.push_back(std::move(message));
  return buffer;
}

}  // namespace pipewright::exec::cpu
