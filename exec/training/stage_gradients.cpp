// A TrainableStage among the ranks that hold the same weights: its part of their gradients, and the
// part of the weights that it alone updates.
#include <numeric>
#include <utility>

#include "core/base/error.hpp"
#include "exec/training/shard.hpp"
#include "exec/training/stage.hpp"

namespace pipewright::exec {

void TrainableStage::begin_gradients() {
  weights_->clear_gradients();
  gradients_are_old_ = false;
  gradients_are_settled_ = true;
  gradient_micro_batches_ = 0;
}

void TrainableStage::settle_gradients() {
  if (gradients_are_settled_) return;
  PIPEWRIGHT_ASSERT(!divides_gradients() || !weights_->shared_out()->has_whole_gradients(),
                    "divided gradients are asked for before all were reduced");
  weights_->settle();
  gradients_are_settled_ = true;
}

SquareSum TrainableStage::squares() {
  settle_gradients();
  return weights_->squares(own_ranges_);
}

void TrainableStage::scale_gradients(float factor) {
  if (factor != 1.0F) weights_->scale(factor, false);
}

GradientPart TrainableStage::gradient_part() {
  if (divides_gradients()) {
    GradientPart part = weights_->shared_out()->hand_over_whole_gradients();
    part.micro_batches = std::exchange(gradient_micro_batches_, 0);
    return part;
  }
  if (!has_gradients()) return {};
  std::vector<std::size_t> all(parameters_.all.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  GradientPart part = weights_->part(all);
  part.micro_batches = gradient_micro_batches_;
  return part;
}

/// Of a sharded stage's weight, other replicas sum the rest.
ElementRange TrainableStage::range_of(std::size_t place) const {
  return is_sharded() && !parameters_.all[place]->is_statistic
             ? own_ranges_[place]
             : ElementRange{0, parameters_.sizes[place]};
}

/// Divided gradients are added to: each of a step's REDUCE_GRADs brings its micro-batches'.
void TrainableStage::set_gradients(std::span<const GradientPart* const> parts,
                                   std::span<const GradientPart* const> of_same_experts) {
  if (divides_gradients()) {
    if (gradients_are_old_) begin_gradients();
  } else {
    gradient_micro_batches_ = 0;
    for (const GradientPart* part : parts) gradient_micro_batches_ += part->micro_batches;
  }
  gradients_are_old_ = gradients_are_settled_ = false;
  for (std::size_t i = 0; i < parameters_.all.size(); ++i) {
    Summands summands{{}, {}, range_of(i), "the replicas' gradients"};
    for (const GradientPart* part : parameters_.all[i]->is_of_experts ? of_same_experts : parts) {
      if (!part->gradients.empty()) summands.gradients.push_back(&part->gradients[i]);
      if (!part->sums.empty()) summands.sums.push_back(&part->sums[i]);
    }
    divides_gradients() ? weights_->shared_out()->add(i, summands) : weights_->set(i, summands);
  }
}

GradientPart TrainableStage::table_part() {
  const std::size_t places[] = {*parameters_.shared_table};
  GradientPart part = weights_->part(places);
  const ElementRange own = range_of(places[0]);
  if (divides_gradients()) {
    spread(own, parameters_.sizes[places[0]], part);
  } else if (is_sharded()) {
    keep_only(own, part);
  }
  return part;
}

/// All of it, of a sharded stage too, as far as it has place: its replicas' parts are summands.
void TrainableStage::set_table(std::span<const GradientPart* const> parts) {
  const std::size_t place = *parameters_.shared_table;
  const ElementRange all{0, parameters_.sizes[place]};
  Summands summands{{}, {}, divides_gradients() ? range_of(place) : all, "the gradients"};
  for (const GradientPart* part : parts) {
    for (const AlignedFloats& one : part->gradients) summands.gradients.push_back(&one);
    for (const FixedPointSums& one : part->sums) summands.sums.push_back(&one);
  }
  weights_->set(place, summands);
  gradients_are_settled_ = false;
}

// --- Sharded ---

void TrainableStage::own_shard(StageShards shards, const Sharding& sharding) {
  PIPEWRIGHT_ASSERT(weights_->shared_out() != nullptr, "a sharded stage on a device that has none");
  sharding_ = sharding;
  shards_ = std::move(shards);
  own_ranges_ = weights_->shared_out()->ranges_of(parameters_, shards_.replicas[shards_.own]);
  weights_->shared_out()->own(own_ranges_, sharding);
}

void TrainableStage::make_whole_gradients() {
  if (gradients_are_old_) begin_gradients();
  weights_->shared_out()->make_whole_gradients();
}

void TrainableStage::make_whole_weights() { weights_->shared_out()->make_whole_weights(); }

void TrainableStage::drop_weights() {
  if (divides_weights()) weights_->shared_out()->drop_whole_weights();
}

std::vector<StateView> TrainableStage::state() {
  std::vector<StateView> views = weights_->state();
  for (StateView& view : views) view.is_copy |= view.is_shared_out && !shards_.counts;
  return views;
}

GradientPart TrainableStage::own_part(bool with_gradients) const {
  return weights_->shared_out()->owned_part(own_ranges_, with_gradients);
}

void TrainableStage::take_parts(std::span<const GradientPart* const> parts) {
  const std::vector<ShardPlace>& replicas = shards_.replicas;
  PIPEWRIGHT_ASSERT(parts.size() == replicas.size(), "weights of other replicas");
  SharedOutWeights& weights = *weights_->shared_out();
  for (std::size_t m = 0; m < parts.size(); ++m) {
    const bool has_same_experts = replicas[m].experts == replicas[shards_.own].experts;
    weights.take(weights.ranges_of(parameters_, replicas[m]), has_same_experts, *parts[m]);
  }
}

}  // namespace pipewright::exec
