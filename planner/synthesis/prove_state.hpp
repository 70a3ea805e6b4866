// The state of a branch and bound: what every rank has done, when it is free, what has arrived.
// Moves are made and taken back in place.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/synthesis/problem.hpp"

namespace pipewright::planner::synthesis {

struct ProofState {
  explicit ProofState(const Problem& p);

  const Problem& problem;
  std::vector<int> done;               // by token
  std::vector<std::int64_t> arrival;   // F of (stage, k), then I; kNever: not yet
  std::vector<std::int64_t> clock;     // by rank
  std::vector<std::int64_t> held;      // by rank
  std::vector<std::int64_t> begin;     // by rank: its first start; kNever: none yet
  std::vector<std::uint8_t> left_out;  // by token: not before the rank has taken something else
  std::vector<Sequence> taken;         // by rank
  std::size_t left = 0;

  /// When the token's next action could start; kNever if it cannot be next.
  std::int64_t start_of(Token token) const;

  struct Undo {
    Token token;
    std::int64_t clock, begin;
    std::size_t arrival;  // what it made; none: the arrays' size
    std::vector<Token> left_out;
  };
  Undo take(Token token, std::int64_t start);
  void take_back(const Undo& undo);

  std::size_t input_place(Token token, int k) const;
  Sequence sequence() const;
};

}  // namespace pipewright::planner::synthesis
