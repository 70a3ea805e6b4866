// The parameters of a stage on a GPU whose replicas share the update out (ZeRO).
#include <algorithm>

#include "core/base/error.hpp"
#include "exec/devices/cuda/bfloat16.hpp"
#include "exec/devices/cuda/parameters.hpp"

namespace pipewright::exec::cuda {

ElementRange Parameters::overlap(const Placed& p, const ElementRange& range) {
  const std::size_t end = p.offset + p.size;
  return {std::clamp(range.begin, p.offset, end) - p.offset,
          std::clamp(range.end, p.offset, end) - p.offset};
}

Parameters::Held Parameters::kept_of(const Placed& p) const {
  const Section& section = section_of(p);
  const ElementRange own = overlap(p, section.own);
  if (own.size() == 0) return {};
  return {own, section.kept + (p.offset + own.begin - section.own.begin)};
}

/// Of the array, so that each part is one range of a section.
std::vector<ElementRange> Parameters::ranges_of(const StageParameters&,
                                                const ShardPlace& place) const {
  PIPEWRIGHT_ASSERT(place.of_all.count == shard_.place.of_all.count,
                    "parts of another number of replicas");
  std::vector<ElementRange> ranges;
  for (const Placed& p : all_) {
    const Section& section = section_of(p);
    const PartOfAll& part = section.is_apart ? place.of_experts : place.of_all;
    // Every replica makes statistics.
    ranges.push_back(section.is_statistics ? ElementRange{}
                                           : overlap(p, section.part_at(part.index)));
  }
  return ranges;
}

/// Arrays have been so from the beginning.
void Parameters::own(const std::vector<ElementRange>&, const Sharding& sharding) {
  PIPEWRIGHT_ASSERT(sharding == shard_.sharding, "replicas that divide something else");
}

GradientPart Parameters::owned_part(std::span<const ElementRange> ranges,
                                    bool with_gradients) const {
  GradientPart part;
  // `own`: where the own part of the parameter's section begins.
  const auto copy = [&](const float* own, std::size_t place) {
    const ElementRange& range = ranges[place];
    const Placed& p = all_[place];
    AlignedFloats& to = part.gradients.emplace_back(range.size());
    if (range.size() > 0)
      copy_floats(own + (p.offset + range.begin - section_of(p).own.begin), to.size(), to.data());
  };
  for (std::size_t i = 0; i < all_.size(); ++i) copy(own_values(section_of(all_[i])), i);
  for (std::size_t i = 0; with_gradients && i < all_.size(); ++i)
    copy(own_gradients(section_of(all_[i])), i);
  finish();
  return part;
}

void Parameters::take(std::span<const ElementRange> ranges, bool with_experts,
                      const GradientPart& part) {
  const std::size_t n = all_.size();
  if (part.gradients.size() != n && part.gradients.size() != 2 * n)
    throw RunError("received parameters of another stage");
  std::vector<std::vector<Bfloat16>> narrow;  // until they are copied
  for (std::size_t i = 0; i < part.gradients.size(); ++i) {
    const Placed& p = all_[i % n];
    if (p.host->is_of_experts && !with_experts) continue;
    const AlignedFloats& from = part.gradients[i];
    const ElementRange& range = ranges[i % n];
    if (from.size() != range.size()) throw RunError("received parameters of another part");
    const std::size_t at = p.offset + range.begin;
    if (from.empty()) continue;
    if (i < n && read_) {
      const auto& rounded = narrow.emplace_back(from.begin(), from.end());
      queue_.copy(static_cast<Bfloat16*>(read_weights().at()) + at, rounded.data(),
                  rounded.size() * sizeof(Bfloat16));
    } else {
      const Buffer array = i < n ? read_weights() : gradients_;
      copy_floats(from.data(), from.size(), array.floats() + at);
    }
  }
  finish();
}

}  // namespace pipewright::exec::cuda
