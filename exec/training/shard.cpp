#include "exec/training/shard.hpp"

#include <algorithm>
#include <utility>

namespace pipewright::exec {
namespace {

template <class Array>
void clear_outside(const ElementRange& range, Array& values) {
  std::fill(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(range.begin), 0);
  std::fill(values.begin() + static_cast<std::ptrdiff_t>(range.end), values.end(), 0);
}

template <class Array>
Array spread_out(const ElementRange& range, std::size_t size, const Array& values) {
  Array whole(size, 0);
  std::copy(values.begin(), values.end(), whole.begin() + static_cast<std::ptrdiff_t>(range.begin));
  return whole;
}

/// Goes through elements one after another, of which some are in the part.
class PartWalk {
 public:
  PartWalk(const PartOfAll& part, std::size_t all)
      : first_(all * part.index / part.count), last_(all * (part.index + 1) / part.count) {}

  /// Of the next so many.
  ElementRange next(std::size_t size) {
    const std::size_t begin = std::exchange(at_, at_ + size);
    return {std::clamp(first_, begin, at_) - begin, std::clamp(last_, begin, at_) - begin};
  }

 private:
  const std::size_t first_, last_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<ElementRange> shard_of(const StageParameters& parameters, const ShardPlace& place) {
  std::size_t all = 0, of_experts = 0;
  for (std::size_t i = 0; i < parameters.all.size(); ++i) {
    const Parameter& p = *parameters.all[i];
    if (!p.is_statistic) (p.is_of_experts ? of_experts : all) += parameters.sizes[i];
  }
  PartWalk walk(place.of_all, all), walk_of_experts(place.of_experts, of_experts);
  std::vector<ElementRange> ranges;
  for (std::size_t i = 0; i < parameters.all.size(); ++i) {
    const Parameter& p = *parameters.all[i];
    ranges.push_back(p.is_statistic
                         ? ElementRange{}
                         : (p.is_of_experts ? walk_of_experts : walk).next(parameters.sizes[i]));
  }
  return ranges;
}

void keep_only(const ElementRange& range, GradientPart& part) {
  for (AlignedFloats& one : part.gradients) clear_outside(range, one);
  for (FixedPointSums& one : part.sums) {
    FixedPointSums::Words high = one.high(), low = one.low();
    clear_outside(range, high);
    clear_outside(range, low);
    one = FixedPointSums(std::move(high), std::move(low));
  }
}

void spread(const ElementRange& range, std::size_t size, GradientPart& part) {
  for (AlignedFloats& one : part.gradients) one = spread_out(range, size, one);
  for (FixedPointSums& one : part.sums)
    one = FixedPointSums(spread_out(range, size, one.high()), spread_out(range, size, one.low()));
}

}  // namespace pipewright::exec
