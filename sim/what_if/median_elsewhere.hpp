// What an action takes elsewhere: the median of the same kind and stage on other ranks, or, where
// the stage is nowhere else, of the same kind (docs/metrics.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace pipewright::sim {

class TimedProgram;

class MedianElsewhere {
 public:
  /// `ns` by action of the Program. O(n log n).
  MedianElsewhere(const TimedProgram& program, std::span<const std::int64_t> ns);

  /// Of an even number the smaller of the middle two; nullopt where no other rank has one.
  std::optional<std::int64_t> of(std::size_t action) const;

 private:
  /// Times of many ranks, and where each rank's own stand among them.
  struct Group {
    std::vector<std::int64_t> ns;                     // ascending
    std::map<int, std::vector<std::size_t>> of_rank;  // places, ascending
    std::optional<std::int64_t> median_without(int rank) const;
  };
  using Key = std::pair<int, int>;  // kind, stage; a pair's kind is one of its own, all stages: -1

  const TimedProgram& program_;
  std::map<Key, Group> groups_;
};

}  // namespace pipewright::sim
