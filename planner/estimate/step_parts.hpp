// The parts of a step's estimate, for any run of layers. The estimate of whole ranks
// (planner/estimate/step_estimate.hpp) and that of a plan's stages
// (planner/estimate/stage_estimate.hpp) share them. Pure functions; seconds, bytes, numbers of
// weights.
#pragma once

#include <array>
#include <numeric>

#include "planner/estimate/block_work.hpp"

namespace pipewright::planner {

/// How many blocks of each kind, by BlockKind::index().
struct BlockCounts {
  std::array<int, kBlockKinds> of_kind{};

  int all() const { return std::accumulate(of_kind.begin(), of_kind.end(), 0); }
  int with_experts() const;
  bool operator==(const BlockCounts&) const = default;
};
BlockCounts blocks_of_kind(BlockKind kind, int count);

/// Layers that lie together: blocks, and the model's ends.
struct LayerRange {
  BlockCounts blocks;
  bool embedding = false, head = false;
  bool first_block = false;  // of the model: below its first adapter nothing is trained

  void add(const LayerRange& other);
  bool operator==(const LayerRange&) const = default;
};

/// Of the kinds that the counts have, each with its count: `each(kind, count)`.
template <class Each>
void for_each_kind(const BlockCounts& counts, Each each) {
  static constexpr auto kKinds = all_block_kinds();
  for (std::size_t k = 0; k < kBlockKinds; ++k)
    if (counts.of_kind[k] > 0) each(kKinds[k], counts.of_kind[k]);
}

/// `count` blocks from block `first` on, without ends.
LayerRange blocks_in(const Architecture& model, int first, int count);
/// All that pipeline rank r holds in a setup without interleaving.
LayerRange range_of_rank(const Architecture& model, const ParallelSetup& setup, int rank);

/// Some of a device's weights, how many of them are experts', and the messages that exchange them,
/// the experts' apart: one for each layer, unless each tensor has its own
/// (planner/estimate/tensor_exchange.hpp).
struct WeightCount {
  double all = 0, of_experts = 0;
  int messages = 0, messages_of_experts = 0;

  /// Each device's part where replicas share them out; experts are on fewer replicas.
  double shared(const ParallelSetup& setup) const;
};

/// Weights of one device, and those of them that are trained: with LoRA the adapters' alone. A head
/// without its embedding holds a tied table of its own.
struct RangeWeights : WeightCount {
  WeightCount trained;
  WeightCount again;  // that are gathered once more for what is computed again
};
RangeWeights weights_of(const Architecture& model, const ParallelSetup& setup,
                        const LayerRange& range);

/// The nodes that a pipeline rank sits on, as one: the slowest rate of each kind, and the least
/// memory.
NodeRates slowest_node(const Machine& machine, const ParallelSetup& setup, int rank);
/// The same of all ranks, each different one once.
struct RankNodes {
  std::vector<NodeRates> nodes;
  std::vector<int> of_rank;  // place in `nodes`; empty: all ranks are on the first

  int place(int rank) const {
    return of_rank.empty() ? 0 : of_rank[static_cast<std::size_t>(rank)];
  }
};
/// True where each rank is on the same kind of node in both: then no estimate differs.
bool alike(const RankNodes& a, const RankNodes& b);
RankNodes nodes_of_ranks(const Machine& machine, const ParallelSetup& setup);

/// One of the model's ends, one micro-batch of `rows` tokens.
struct EndSeconds {
  double forward = 0, input = 0, weight = 0;

  double sum() const { return forward + input + weight; }
  EndSeconds operator+(const EndSeconds& other) const {
    return {forward + other.forward, input + other.input, weight + other.weight};
  }
  EndSeconds operator*(double times) const {
    return {times * forward, times * input, times * weight};
  }
};
/// A gather and a scatter of rows, and the gradient of the whole table, unless it is frozen.
EndSeconds embedding_seconds(const Architecture& model, const FrameworkTraits& framework,
                             const NodeRates& node, const Machine& machine,
                             const ParallelSetup& setup, double rows);
/// The product with the table, and the loss; with the blocks for further tokens, whose heads these
/// are too.
EndSeconds head_seconds(const Architecture& model, const FrameworkTraits& framework,
                        const NodeRates& node, const Machine& machine, const ParallelSetup& setup,
                        double rows);

double update_seconds(const FrameworkTraits& framework, const ParallelSetup& setup,
                      const NodeRates& node, const RangeWeights& weights);
/// First and last rank add up the gradients of a table that both hold; 0 where they do not, or
/// where it is frozen.
double tied_seconds(const Architecture& model, const FrameworkTraits& framework,
                    const Machine& machine, const ParallelSetup& setup, const NodeRates& node);

/// A device's way from pipeline rank `from` to `to`, all devices of a node at the same time.
struct Hop {
  double latency = 0, bytes_per_second = 0;
};
Hop hop_between(const Machine& machine, const ParallelSetup& setup, int from, int to);
/// What a device sends of one micro-batch: tensor parallel ranks each send their part.
double hop_bytes(const Architecture& model, const ParallelSetup& setup);

// Of a rank's memory (planner/estimate/memory_estimate.cpp); bytes.

/// Buffers of `incoming` messages a micro-batch, activations and gradients, where they stay; where
/// they do not, an input counts among what its micro-batch keeps.
double received_bytes(const Architecture& model, const FrameworkTraits& framework,
                      const ParallelSetup& setup, int incoming);

struct StateBytes {
  double weights = 0, gradients = 0, optimizer = 0;

  double sum() const { return weights + gradients + optimizer; }
};
StateBytes state_bytes(const Architecture& model, const FrameworkTraits& framework,
                       const ParallelSetup& setup, const LayerRange& range);
/// What one micro-batch in flight keeps at the model's ends: the embedding's dropout mask; what the
/// last norm, the head and the loss keep (arXiv:2205.05198 §4.3), for each token that is predicted.
double embedding_kept_bytes(const Architecture& model, const FrameworkTraits& framework,
                            const ParallelSetup& setup);
double head_kept_bytes(const Architecture& model, const FrameworkTraits& framework,
                       const ParallelSetup& setup);
/// What lives only within one backward, beside all that is kept: the block itself where it was
/// forgotten, else the gradient of its widest part; gathered weights.
double passing_bytes(const Architecture& model, const FrameworkTraits& framework,
                     const ParallelSetup& setup, const LayerRange& range);

}  // namespace pipewright::planner
