// Whose turn it is on a rank with several chunks: micro-batches come in groups of G; a group goes
// through the first chunk, then through the second, and so on. The last group takes what is left.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pipewright::planner {

struct ChunkTurn {
  int chunk = 0;
  int micro_batch = 0;
};

class ChunkTurns {
 public:
  ChunkTurns(int micro_batches, int chunks, int group)
      : micro_batches_(micro_batches),
        chunks_(chunks),
        group_(group),
        round_(std::int64_t{group} * chunks) {}

  /// The k-th forward of a rank, k from 0.
  ChunkTurn forward(std::int64_t k) const {
    const std::int64_t round = k / round_;
    const int first = static_cast<int>(round) * group_;
    const int size = std::min(group_, micro_batches_ - first);
    const int place = static_cast<int>(k - round * round_);
    return {place / size, first + place % size};
  }

  /// The k-th backward: the same turns, last chunk first.
  ChunkTurn backward(std::int64_t k) const {
    const ChunkTurn turn = forward(k);
    return {chunks_ - 1 - turn.chunk, turn.micro_batch};
  }

 private:
  int micro_batches_, chunks_, group_;
  std::int64_t round_;  // actions of one kind in a full group
};

/// Of interleaved 1F1B: how many of a rank's `forwards` it computes before the first one that a
/// backward follows.
inline std::int64_t interleaved_warm_up(int ranks, int rank, int chunks, int group,
                                        std::int64_t forwards) {
  return std::min(std::int64_t{chunks - 1} * group + 2 * (ranks - 1 - rank), forwards);
}

}  // namespace pipewright::planner
