#include "exec/training/shard.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "core/order/devices.hpp"

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

/// Numbered by rank, as in every collective of the stage.
std::vector<ShardPlace> places_of(const Program& program, const Collective& collective,
                                  bool experts_differ_along_context) {
  std::vector<ShardPlace> places;
  std::map<int, std::size_t> holders;  // by which experts they hold
  for (const Collective::Member& member : collective.members) {
    const int experts =
        place_of_experts(program.devices, member.rank, experts_differ_along_context);
    places.push_back({.of_all = {places.size(), collective.members.size()},
                      .of_experts = {holders[experts]++, 0},
                      .experts = experts});
  }
  for (ShardPlace& place : places) place.of_experts.count = holders[place.experts];
  return places;
}

}  // namespace

std::optional<StageShards> shards_of(const Program& program, StageId stage, RankId rank,
                                     bool experts_differ_along_context) {
  for (const Collective& collective : program.collectives) {
    if (collective.kind != ActionKind::Unshard || collective.stage != stage) continue;
    const auto& members = collective.members;
    const auto place_of = [&](RankId wanted) {
      return std::find_if(members.begin(), members.end(),
                          [&](const auto& member) { return member.rank == wanted; });
    };
    const auto own = place_of(rank);
    if (own == members.end()) continue;
    const RankId first = program.placement.rank_of(
        stage, first_micro_batch(program.devices, rank, program.micro_batches));
    return StageShards{places_of(program, collective, experts_differ_along_context),
                       static_cast<std::size_t>(own - members.begin()),
                       place_of(first) != members.end()};
  }
  return std::nullopt;
}

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
