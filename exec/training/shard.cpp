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

}  // namespace

std::vector<ElementRange> shard_of(const StageParameters& parameters, std::size_t index,
                                   std::size_t count) {
  std::size_t all = 0;
  for (std::size_t i = 0; i < parameters.all.size(); ++i)
    all += parameters.all[i]->is_statistic ? 0 : parameters.sizes[i];
  const std::size_t first = all * index / count, last = all * (index + 1) / count;
  std::vector<ElementRange> ranges;
  std::size_t begin = 0;  // of the parameter at hand, among all elements
  for (std::size_t i = 0; i < parameters.all.size(); ++i) {
    if (parameters.all[i]->is_statistic) {
      ranges.emplace_back();
      continue;
    }
    const std::size_t end = begin + parameters.sizes[i];
    const std::size_t from = std::clamp(first, begin, end), to = std::clamp(last, begin, end);
    ranges.push_back({from - begin, to - begin});
    begin = end;
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
