// Collectives over memory that all members see: each sums its own share of everybody's elements and
// then copies the others' sums, so that it reads about two arrays, however many members there are.
// With windows (exec/collectives/board.hpp) all goes piece by piece.
#pragma once

#include <memory>
#include <string>

#include "exec/collectives/board.hpp"
#include "exec/collectives/group.hpp"

namespace pipewright::exec::collectives {

class SharedGroup : public Group {
 public:
  /// `memory` keeps what the board lies in.
  SharedGroup(Board::Place place, std::shared_ptr<void> memory);

  int member() const override { return board_.member(); }
  int members() const override { return board_.members(); }
  bool all_reduce(Summands values) override;
  bool reduce_scatter(Summands values) override;
  void all_gather(PartsIn all) override;
  void all_to_all(PartsOut out, PartsIn in) override;
  void broadcast(int root, std::span<std::byte> bytes) override;
  void give_up(const std::string& why) noexcept override { board_.give_up(why); }

 private:
  struct Reading;
  struct Shares;
  struct Lanes;

  std::size_t piece_of(std::size_t bytes) const;
  bool reduce_in_rounds(const Summands& values, std::uint64_t call, bool gathers);
  bool reduce_all(const Summands& values, std::uint64_t call);
  void round_of_all(const PartsOut& out, const PartsIn& in, Lanes& lanes);
  void finish(std::uint64_t call);

  const std::shared_ptr<void> memory_;
  const std::size_t window_bytes_;
  Board board_;
};

}  // namespace pipewright::exec::collectives
