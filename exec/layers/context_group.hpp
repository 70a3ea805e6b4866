// The ranks that have a part of every sequence each (context parallelism), as one of them sees it:
// which positions are its own, and in which turns all go on with sums over the rows of a
// micro-batch, so that these are added in the order of the sequences. One thread at a time.
#pragma once

#include <vector>

#include "core/model/context_split.hpp"
#include "exec/layers/tensor_group.hpp"

namespace pipewright::exec {

class ContextGroup : public AxisGroup {
 public:
  /// `ring`: keys and values go round the members.
  ContextGroup(int index, int size, bool ring, Numerics numerics, PausePoint& point)
      : AxisGroup(kContextAxis, index, size, numerics, point), ring_(ring) {}

  ContextPlace place() const { return {index(), size()}; }
  /// Of the rank whose keys and values are here after so many hops.
  ContextPlace place_after(int hops) const { return {(index() + size() - hops) % size(), size()}; }
  bool is_ring() const { return ring_; }

 private:
  const bool ring_;
};

/// Of so many samples, of each of which a member has so many rows: chunk by chunk who goes on, with
/// which of its rows.
inline std::vector<ChainTurn> turns_of_rows(int samples, int rows_of_sample, int members) {
  const int chunk = rows_of_sample / 2;
  std::vector<ChainTurn> turns;
  for (int sample = 0; sample < samples; ++sample) {
    for (int c = 0; c < 2 * members; ++c) {
      const std::int64_t begin =
          std::int64_t{sample} * rows_of_sample + which_of_holder(c, members) * chunk;
      turns.push_back({holder_of_chunk(c, members), {begin, chunk}});
    }
  }
  return turns;
}

}  // namespace pipewright::exec
