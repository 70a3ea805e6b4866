#include "exec/devices/cpu/divided_arrays.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "core/base/error.hpp"
#include "core/model/tensor_split.hpp"

namespace pipewright::exec::cpu {
namespace {

Range elements_of(const StateView& view) {
  return {view.first, static_cast<std::int64_t>(view.values.size())};
}

/// From the other ranks of this process.
std::vector<float> taken_from_ranks(const DividedArray& array,
                                    const std::vector<TrainedRank>& ranks) {
  std::vector<float> parts;
  for (const RankId id : array.block) {
    const TrainedRank& rank = ranks[static_cast<std::size_t>(id.value)];
    const std::span<float> part = rank.stage(array.stage).state()[array.index].values;
    parts.insert(parts.end(), part.begin(), part.end());
  }
  return parts;
}

/// From the other processes; only the first member gets anything.
std::vector<float> sent_to_first(std::span<const float> own, collectives::Group& group) {
  const auto members = static_cast<std::size_t>(group.members());
  std::vector<std::size_t> out(members, 0), in(members, 0);
  out.front() = own.size_bytes();
  std::vector<float> parts;
  if (group.member() == 0) {
    in.assign(members, own.size_bytes());
    parts.resize(members * own.size());
  }
  group.all_to_all({std::as_bytes(own), out}, {std::as_writable_bytes(std::span(parts)), in});
  return parts;
}

/// What all members have of the array; the parts lie one after another and are equally long.
struct Assembled {
  std::vector<float> whole;
  std::vector<Range> filled;  // ascending, no two of them adjacent
};

Assembled assembled(const StateView& first, std::span<const float> parts, int members) {
  Assembled array;
  array.whole.resize(static_cast<std::size_t>(first.total * members));
  std::vector<Range> places;
  auto from = parts.begin();
  for (int m = 0; m < members; ++m) {
    for (const Range& place : other_part(first.slice, 0, m).places_of(elements_of(first))) {
      std::copy_n(from, place.count, array.whole.begin() + place.begin);
      from += place.count;
      places.push_back(place);
    }
  }
  std::sort(places.begin(), places.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (const Range& place : places) {
    Range* const last = array.filled.empty() ? nullptr : &array.filled.back();
    if (last != nullptr && last->begin + last->count == place.begin)
      last->count += place.count;
    else
      array.filled.push_back(place);
  }
  return array;
}

}  // namespace

void write_divided(const DividedArray& array, const std::vector<TrainedRank>& ranks,
                   collectives::Group* group, const StateView& own, CheckpointPartWriter& writer) {
  PIPEWRIGHT_ASSERT(group != nullptr, "ranks divide an array and have no group");
  const bool is_first = group->member() == 0;
  const bool are_threads = std::all_of(array.block.begin(), array.block.end(), [&](RankId rank) {
    return ranks[static_cast<std::size_t>(rank.value)].is_here();
  });
  if (are_threads && !is_first) return;
  const std::vector<float> parts =
      are_threads ? taken_from_ranks(array, ranks) : sent_to_first(own.values, *group);
  if (!is_first) return;
  const Assembled all = assembled(own, parts, group->members());
  for (const Range& range : all.filled) {
    writer.add({own.parameter, std::string(own.slot), range.begin,
                static_cast<std::int64_t>(all.whole.size()),
                std::span(all.whole).subspan(static_cast<std::size_t>(range.begin),
                                             static_cast<std::size_t>(range.count))});
  }
}

/// Rows of a part may lie in many stretches: what lies around them is read once.
void read_own(const Checkpoint& checkpoint, const StateView& view) {
  if (view.values.empty()) return;
  const std::vector<Range> places = view.slice.places_of(elements_of(view));
  const std::int64_t first = places.front().begin;
  if (places.size() == 1) return checkpoint.read(view.parameter, view.slot, view.values, first);
  const std::int64_t end = places.back().begin + places.back().count;
  std::vector<float> around(static_cast<std::size_t>(end - first));
  checkpoint.read(view.parameter, view.slot, around, first);
  auto to = view.values.begin();
  for (const Range& place : places)
    to = std::copy_n(around.begin() + (place.begin - first), place.count, to);
}

}  // namespace pipewright::exec::cpu
