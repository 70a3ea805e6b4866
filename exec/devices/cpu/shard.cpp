#include "exec/devices/cpu/shard.hpp"

#include <algorithm>
#include <iterator>

#include "core/base/error.hpp"

namespace pipewright::exec::cpu {
namespace {

AlignedFloats slice_of(const AlignedFloats& all, const ElementRange& range) {
  return {all.begin() + static_cast<std::ptrdiff_t>(range.begin),
          all.begin() + static_cast<std::ptrdiff_t>(range.end)};
}

void put_slice(const AlignedFloats& slice, const ElementRange& range, AlignedFloats& all) {
  if (slice.size() != range.size()) throw RunError("received parameters of another part");
  std::copy(slice.begin(), slice.end(), all.begin() + static_cast<std::ptrdiff_t>(range.begin));
}

}  // namespace

std::vector<Parameter*> weights_of(const std::vector<Parameter*>& parameters) {
  std::vector<Parameter*> weights;
  std::copy_if(parameters.begin(), parameters.end(), std::back_inserter(weights),
               [](const Parameter* p) { return !p->is_statistic; });
  return weights;
}

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

GradientPart shard_part(const std::vector<Parameter*>& parameters,
                        const std::vector<ElementRange>& ranges, bool with_gradients) {
  GradientPart part;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    part.gradients.push_back(slice_of(parameters[i]->value, ranges[i]));
  if (!with_gradients) return part;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    part.gradients.push_back(slice_of(parameters[i]->gradient, ranges[i]));
  return part;
}

void take_shard(const std::vector<Parameter*>& parameters, const std::vector<ElementRange>& ranges,
                const GradientPart& part) {
  const std::size_t n = parameters.size();
  if (part.gradients.size() != n && part.gradients.size() != 2 * n)
    throw RunError("received parameters of another stage");
  for (std::size_t i = 0; i < part.gradients.size(); ++i) {
    Parameter& p = *parameters[i % n];
    put_slice(part.gradients[i], ranges[i % n], i < n ? p.value : p.gradient);
  }
}

}  // namespace pipewright::exec::cpu
