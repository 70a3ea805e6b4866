// A Stage among the ranks that hold the same weights: its part of their gradients, and the part of
// the weights that it alone updates.
#include <algorithm>

#include "core/base/error.hpp"
#include "exec/devices/cpu/shard.hpp"
#include "exec/devices/cpu/stage.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec::cpu {
namespace {

/// Sets what lies outside of the range to 0.
template <class Array>
void keep_only(const ElementRange& range, Array& values) {
  std::fill(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(range.begin), 0);
  std::fill(values.begin() + static_cast<std::ptrdiff_t>(range.end), values.end(), 0);
}

}  // namespace

GradientPart Stage::gradient_part() {
  GradientPart part;
  if (gradients_are_old_ || gradient_micro_batches_ == 0) return part;
  part.micro_batches = gradient_micro_batches_;
  part.sums = sums_;
  if (!sums_.empty()) return part;
  for (const Parameter* p : parameters_) part.gradients.push_back(p->gradient);
  return part;
}

void Stage::set_gradients(std::span<const GradientPart* const> parts) {
  begin_gradients();
  for (const GradientPart* part : parts) {
    gradient_micro_batches_ += part->micro_batches;
    for (std::size_t i = 0; i < part->gradients.size(); ++i) {
      // Of a sharded stage, other replicas sum the rest.
      const bool whole = own_ranges_.empty() || parameters_[i]->is_statistic;
      const ElementRange range =
          whole ? ElementRange{0, part->gradients[i].size()} : own_ranges_[i];
      add_to(range.size(), part->gradients[i].data() + range.begin,
             parameters_[i]->gradient.data() + range.begin);
    }
    for (std::size_t i = 0; i < part->sums.size(); ++i) {
      if (sums_[i].add(part->sums[i])) continue;
      note_not_finite("the replicas' gradients of \"" + parameters_[i]->name +
                      "\" add up to more than 4e12");
      sums_[i].clear();
    }
  }
}

GradientPart Stage::table_part() {
  const Parameter& table = *parameters_[*shared_table_];
  ElementRange own{0, table.value.size()};
  if (is_sharded()) own = own_ranges_[*shared_table_];
  GradientPart part;
  if (sums_.empty()) {
    part.gradients.push_back(table.gradient);
    keep_only(own, part.gradients.back());
  } else {
    FixedPointSums::Words high = sums_[*shared_table_].high(), low = sums_[*shared_table_].low();
    keep_only(own, high);
    keep_only(own, low);
    part.sums.emplace_back(std::move(high), std::move(low));
  }
  return part;
}

void Stage::set_table(std::span<const GradientPart* const> parts) {
  Parameter& table = *parameters_[*shared_table_];
  if (sums_.empty()) {
    std::fill(table.gradient.begin(), table.gradient.end(), 0.0F);
  } else {
    sums_[*shared_table_].clear();
    sums_are_settled_ = false;
  }
  for (const GradientPart* part : parts) {
    for (const AlignedFloats& one : part->gradients)
      add_to(one.size(), one.data(), table.gradient.data());
    for (const FixedPointSums& one : part->sums) {
      if (sums_[*shared_table_].add(one)) continue;
      note_not_finite("the gradients of \"" + table.name + "\" add up to more than 4e12");
      sums_[*shared_table_].clear();
    }
  }
}

void Stage::own_shard(std::size_t index, std::size_t count) {
  own_ranges_ = shard_of(parameters_, index, count);
  std::vector<ElementRange> of_weights;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i]->is_statistic) of_weights.push_back(own_ranges_[i]);
  }
  optimizer_ =
      std::make_unique<Optimizer>(optimizer_spec_, weights_of(parameters_), std::move(of_weights));
}

GradientPart Stage::own_part(bool with_gradients) const {
  return shard_part(parameters_, own_ranges_, with_gradients);
}

void Stage::take_parts(std::span<const GradientPart* const> parts) {
  for (std::size_t m = 0; m < parts.size(); ++m)
    take_shard(parameters_, shard_of(parameters_, m, parts.size()), *parts[m]);
}

}  // namespace pipewright::exec::cpu
