// The bound of a node of the branch and bound.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/synthesis/bound.hpp"
#include "planner/synthesis/prove_state.hpp"

namespace pipewright::planner::synthesis {

class NodeBound {
 public:
  explicit NodeBound(const Problem& problem);

  /// No order that goes on from the state has a value below. O(actions left).
  std::int64_t of(const ProofState& state);

 private:
  void heads(const ProofState& state);
  std::int64_t forward_head(const ProofState& state, int stage, int k) const;
  std::int64_t input_head(const ProofState& state, int stage, int k) const;
  std::int64_t rank_end(const ProofState& state, int rank, bool with_weights);
  std::size_t place(Token token, int k) const {
    return token * static_cast<std::size_t>(problem_.micro_batches) + static_cast<std::size_t>(k);
  }

  const Problem& problem_;
  MemoryPrecedence before_;
  std::vector<std::int64_t> tail_;  // by rank: after its last I, down to stage 0's W
  std::vector<std::int64_t> end_;   // by token and k: the earliest end; done: 0
};

}  // namespace pipewright::planner::synthesis
