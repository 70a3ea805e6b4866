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

}  // namespace

std::vector<ElementRange> shard_of(const std::vector<Parameter*>& parameters, std::size_t index,
                                   std::size_t count) {
  std::size_t all = 0;
  for (const Parameter* p : parameters) all += p->is_statistic ? 0 : p->value.size();
  const std::size_t first = all * index / count, last = all * (index + 1) / count;
  std::vector<ElementRange> ranges;
  std::size_t begin = 0;  // of the parameter at hand, among all elements
  for (const Parameter* p : parameters) {
    if (p->is_statistic) {
      ranges.emplace_back();
      continue;
    }
    const std::size_t end = begin + p->value.size();
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

}  // namespace pipewright::exec
