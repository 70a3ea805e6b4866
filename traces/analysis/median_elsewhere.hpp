// What an action takes elsewhere: the median of the same kind and stage on other ranks
// (docs/metrics.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace pipewright::traces {

/// An action's time. Alike are those of one kind and stage; kinds are numbers of the caller's.
struct PlacedTime {
  static constexpr int kNoStage = -1;
  int kind = 0, stage = kNoStage, rank = 0;
  std::int64_t ns = 0;
};

/// Of an even number of times the smaller of the middle two counts.
class MedianElsewhere {
 public:
  /// O(n log n). What `times` refers to must outlive this.
  explicit MedianElsewhere(std::span<const PlacedTime> times);

  /// On other ranks; where the stage is on no other, of the same kind there. nullopt: no other rank
  /// has one.
  std::optional<std::int64_t> of(std::size_t time) const;
  /// Of the same stage: on other ranks; where it is on no other, of all others on its own. nullopt:
  /// there is no other, or it has no stage.
  std::optional<std::int64_t> of_stage(std::size_t time) const;

 private:
  /// Times of many ranks, and where each rank's own stand among them.
  struct Group {
    std::vector<std::int64_t> ns;                     // ascending
    std::map<int, std::vector<std::size_t>> of_rank;  // places, ascending
    std::optional<std::int64_t> median_without(int rank) const;
    std::optional<std::int64_t> median_without_one(std::int64_t ns) const;
  };
  using Key = std::pair<int, int>;  // kind, stage; all stages: kNoStage

  std::span<const PlacedTime> times_;
  std::map<Key, Group> groups_;
};

}  // namespace pipewright::traces
