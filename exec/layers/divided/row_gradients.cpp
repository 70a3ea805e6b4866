#include "exec/layers/divided/row_gradients.hpp"

#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {
namespace {

std::size_t size_of(const Parameter& parameter) {
  return static_cast<std::size_t>(parameter.start.size);
}

}  // namespace

RowGradients::RowGradients(std::span<const std::unique_ptr<TrainableLayer>> layers,
                           RankGroups& groups, TensorOps& ops, Extent own)
    : ops_(ops) {
  if (groups.adds_rows_in_turns()) {
    what_ = "gradients";
    group_ = groups.context();
    own_rows_ = {0, own.rows()};
    adds_ = group_->index() == 0;
    turns_ = turns_of_rows(own.samples, own.sequence, group_->size());
    gathers_first_ = groups.divides_rows();
  } else if (groups.divides_rows()) {
    what_ = "norms";
    adds_at_once_ = true;
    group_ = groups.tensor();
    own_rows_ = {0, own.rows() / group_->size()};
    for (int member = 0; member < group_->size(); ++member) turns_.push_back({member, own_rows_});
  } else {
    return;
  }
  for (const auto& layer : layers) {
    layers_.push_back(layer.get());
    auto& places = places_.emplace_back();
    std::vector<Parameter*> parameters;
    layer->collect(parameters);
    for (Parameter* parameter : parameters) {
      if (!parameter->sees_own_rows) continue;
      places.push_back({parameter, words_});
      words_ += size_of(*parameter) * static_cast<std::size_t>(parameter->summands);
    }
  }
}

void RowGradients::add_rows(const Range& rows, float* sums, std::span<Saved> saved) const {
  for (std::size_t i = layers_.size(); i-- > 0;) {
    for (const Place& place : places_[i]) place.parameter->of_own_rows = sums + place.begin;
    layers_[i]->add_own_rows(saved[i], rows);
  }
}

Task<Buffer> RowGradients::bring_together(std::span<Saved> saved) {
  if (words_ == 0) co_return Buffer();
  for (std::size_t i = layers_.size(); gathers_first_ && i-- > 0;)
    co_await layers_[i]->gather_kept_rows(saved[i]);
  Buffer held = ops_.take_floats(words_);
  SumOfMembers sum{.what = what_,
                   .values = held.floats(),
                   .rows = 1,
                   .width = static_cast<int>(words_),
                   .multiply =
                       [&](float* sums) {
                         ops_.clear_floats(words_, sums);
                         add_rows(own_rows_, sums, saved);
                       },
                   .turns = turns_,
                   .go_on = [&](const Range& own, float* sums) { add_rows(own, sums, saved); },
                   .in_floats = true};
  co_await group_->together(sum);
  if (!adds_at_once_) co_return held;
  for (std::size_t i = 0; i < layers_.size(); ++i) add(i, held);
  co_return Buffer();
}

void RowGradients::add(std::size_t layer, const Buffer& sums) const {
  if (!sums || !adds_) return;
  for (const auto& [parameter, begin] : places_[layer]) {
    const std::size_t size = size_of(*parameter);
    for (int i = 0; i < parameter->summands; ++i) {
      if (i > 0 && parameter->next_summand) parameter->next_summand();
      ops_.add_to_gradient(size, sums.floats() + begin + static_cast<std::size_t>(i) * size,
                           parameter->gradients());
    }
  }
}

}  // namespace pipewright::exec
