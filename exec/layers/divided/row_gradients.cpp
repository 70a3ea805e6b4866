#include "exec/layers/divided/row_gradients.hpp"

#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {

RowGradients::RowGradients(std::span<const std::unique_ptr<TrainableLayer>> layers,
                           RankGroups& groups, TensorOps& ops)
    : tensor_(groups.tensor()), ops_(ops) {
  if (!groups.divides_rows()) return;
  turns_ = turns_of({{0, 1}}, tensor_->size());
  std::vector<Parameter*> parameters;
  for (const auto& layer : layers) {
    layers_.push_back(layer.get());
    layer->collect(parameters);
  }
  for (Parameter* parameter : parameters) {
    if (!parameter->sees_own_rows) continue;
    places_.push_back({parameter, words_});
    words_ += static_cast<std::size_t>(parameter->start.size);
  }
}

void RowGradients::add(float* sums, std::span<Saved> saved) const {
  for (const Place& place : places_) place.parameter->of_own_rows = sums + place.begin;
  for (std::size_t i = layers_.size(); i-- > 0;) layers_[i]->add_own_rows(saved[i]);
}

Task<void> RowGradients::bring_together(std::span<Saved> saved) {
  if (places_.empty()) co_return;
  const Buffer held = ops_.take(words_);
  SumOfMembers sum{.what = "norms",
                   .values = held.floats(),
                   .rows = 1,
                   .width = static_cast<int>(words_),
                   .multiply =
                       [&](float* sums) {
                         ops_.clear(words_, sums);
                         add(sums, saved);
                       },
                   .turns = turns_,
                   .go_on = [&](const Range&, float* sums) { add(sums, saved); }};
  co_await tensor_->together(sum);
  for (const Place& place : places_)
    ops_.add_to(static_cast<std::size_t>(place.parameter->start.size), held.floats() + place.begin,
                place.parameter->gradients());
}

}  // namespace pipewright::exec
