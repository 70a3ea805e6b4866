#include "planner/schedules/two_way/dualpipe_rank.hpp"

#include <array>
#include <cstddef>

#include "planner/schedules/building.hpp"

namespace pipewright::planner {
namespace {

enum Side : std::size_t { Near, Far };

/// Each call takes the next micro-batch of its kind and stream. Weight gradients are taken in the
/// order in which backwards left them.
class DualPipeRankWriter {
 public:
  DualPipeRankWriter(DualPipeStream near_stream, DualPipeStream far_stream,
                     std::vector<Cell>& cells)
      : streams_{near_stream, far_stream}, cells_(cells) {}

  void forward(Side side) { add(ActionKind::F, next_forward(side)); }
  void whole_backward(Side side) { add(ActionKind::B, next_backward(side)); }
  void split_backward(Side side) {
    const Turn turn = next_backward(side);
    add(ActionKind::I, turn);
    owed_.push_back(turn);
  }
  void weights() { add(ActionKind::W, owed_[paid_++]); }
  void overlapped(Side forward, Side backward) {
    const Turn turn = next_forward(forward);
    append_pair(cells_, turn, next_backward(backward));
  }

 private:
  void add(ActionKind kind, Turn turn) { append(cells_, kind, turn.stage, turn.micro_batch); }
  Turn next_forward(Side side) { return turn_of(side, forwards_[side]++); }
  Turn next_backward(Side side) { return turn_of(side, backwards_[side]++); }
  Turn turn_of(Side side, int k) const {
    return {streams_[side].stage, streams_[side].first_micro_batch + k};
  }

  std::array<DualPipeStream, 2> streams_;
  std::array<int, 2> forwards_ = {}, backwards_ = {};
  std::vector<Turn> owed_;
  std::size_t paid_ = 0;
  std::vector<Cell>& cells_;
};

/// Steps 1 to 3: forwards of the near stream, then of both, then the far stream's first backwards.
void fill(DualPipeRankWriter& rank, int before, int after) {
  for (int k = 0; k < 2 * after; ++k) rank.forward(Near);
  for (int k = 0; k <= before; ++k) {
    rank.forward(Near);
    rank.forward(Far);
  }
  for (int k = 0; k < after; ++k) {
    rank.split_backward(Far);
    rank.weights();
    rank.forward(Far);
  }
}

/// Steps 4 and 5. Where the streams turn or meet, the first backward waits for nothing but the
/// forward before it, and overlapping the next forward with it would only make it later.
void overlap(DualPipeRankWriter& rank, int after, int rounds) {
  for (int k = 0; k < rounds; ++k) {
    if (k == 0 && after == 0) {
      rank.forward(Near);
      rank.whole_backward(Far);
    } else {
      rank.overlapped(Near, Far);
    }
    rank.overlapped(Far, Near);
  }
  for (int k = 0; k < after; ++k) {
    rank.whole_backward(Far);
    rank.overlapped(Far, Near);
  }
}

/// Steps 6 to 8: from the middle of step 6 on, backwards leave their weights' part for the end.
void drain(DualPipeRankWriter& rank, int before, int after) {
  const int backwards = 2 * (before + 1);
  for (int k = 0; k < backwards; ++k) {
    const Side side = k % 2 == 0 ? Far : Near;
    if (k <= before) {
      rank.whole_backward(side);
    } else {
      rank.split_backward(side);
    }
  }
  for (int k = 0; k < after; ++k) {
    rank.weights();
    rank.split_backward(Near);
  }
  for (int k = 0; k <= before; ++k) rank.weights();
}

}  // namespace

void write_dualpipe_rank(int place, int places, int micro_batches, DualPipeStream near_stream,
                         DualPipeStream far_stream, std::vector<Cell>& cells) {
  DualPipeRankWriter rank(near_stream, far_stream, cells);
  const int before = place, after = places - 1 - place;
  fill(rank, before, after);
  overlap(rank, after, micro_batches - 2 * places + place + 1);
  drain(rank, before, after);
}

}  // namespace pipewright::planner
