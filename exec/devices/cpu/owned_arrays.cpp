#include "exec/devices/cpu/owned_arrays.hpp"

#include <algorithm>
#include <utility>

namespace pipewright::exec::cpu {
namespace {

template <class Array>
Array elements(const Array& all, std::size_t first, std::size_t count) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
  return Array(begin, begin + static_cast<std::ptrdiff_t>(count));
}

std::size_t bytes_of(const std::vector<AlignedFloats>& arrays) {
  std::size_t bytes = 0;
  for (const AlignedFloats& one : arrays) bytes += one.size() * sizeof(float);
  return bytes;
}

}  // namespace

FixedPointSums slice_of(const FixedPointSums& sums, std::size_t first, const ElementRange& range) {
  const std::size_t begin = range.begin - first;
  return {elements(sums.high(), begin, range.size()), elements(sums.low(), begin, range.size())};
}

OwnedArrays::OwnedArrays(const std::vector<Parameter*>& parameters,
                         std::vector<FixedPointSums>& sums, const std::vector<ElementRange>& ranges,
                         const Sharding& sharding)
    : parameters_(parameters), sums_(sums), own_(ranges) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& p = *parameters_[i];
    sizes_.push_back(p.value.size());
    if (p.is_statistic) own_[i] = {0, p.value.size()};
    p.gradient = AlignedFloats(own_[i].size(), 0.0F);
    p.first_gradient = own_[i].begin;
    if (!sums_.empty()) sums_[i] = FixedPointSums(own_[i].size());
    if (!sharding.divides_weights()) continue;
    p.value = elements(p.value, own_[i].begin, own_[i].size());
    p.first_value = own_[i].begin;
  }
}

void OwnedArrays::make_whole_gradients() {
  if (has_whole_gradients()) return;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& p = *parameters_[i];
    own_gradients_.push_back(std::exchange(p.gradient, AlignedFloats(sizes_[i], 0.0F)));
    p.first_gradient = 0;
    if (!sums_.empty()) own_sums_.push_back(std::exchange(sums_[i], FixedPointSums(sizes_[i])));
  }
}

GradientPart OwnedArrays::take_whole_gradients() {
  GradientPart part;
  if (!has_whole_gradients()) return part;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& p = *parameters_[i];
    AlignedFloats whole = std::exchange(p.gradient, std::move(own_gradients_[i]));
    p.first_gradient = own_[i].begin;
    if (sums_.empty()) {
      part.gradients.push_back(std::move(whole));
    } else {
      part.sums.push_back(std::exchange(sums_[i], std::move(own_sums_[i])));
    }
  }
  own_gradients_.clear();
  own_sums_.clear();
  return part;
}

void OwnedArrays::make_whole_weights() {
  if (!own_weights_.empty()) return;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& p = *parameters_[i];
    own_weights_.push_back(std::exchange(p.value, AlignedFloats(sizes_[i])));
    std::copy(own_weights_[i].begin(), own_weights_[i].end(),
              p.value.begin() + static_cast<std::ptrdiff_t>(own_[i].begin));
    p.first_value = 0;
  }
}

/// Statistics move by themselves while the weights are whole.
void OwnedArrays::drop_whole_weights() {
  if (own_weights_.empty()) return;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& p = *parameters_[i];
    if (!p.is_statistic) p.value = std::move(own_weights_[i]);
    p.first_value = own_[i].begin;
  }
  own_weights_.clear();
}

std::int64_t OwnedArrays::bytes() const {
  std::size_t bytes = bytes_of(own_gradients_) + bytes_of(own_weights_);
  for (const FixedPointSums& one : own_sums_) bytes += 2 * one.size() * sizeof(std::int64_t);
  return static_cast<std::int64_t>(bytes);
}

}  // namespace pipewright::exec::cpu
