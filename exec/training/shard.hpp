// The part of a stage's parameters that one of its replicas owns (docs/semantics.md §3.2, ZeRO:
// Rajbhandari et al., arXiv:1910.02054): it alone updates them and keeps the optimizer's state of
// them, from stage 2 on their summed gradients, from stage 3 on their weights. Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "core/program/program.hpp"
#include "exec/layers/optimizer.hpp"
#include "exec/training/gradient_part.hpp"
#include "exec/training/stage_parameters.hpp"

namespace pipewright::exec {

/// Part `index` of `count`.
struct PartOfAll {
  std::size_t index = 0, count = 1;
};
/// A replica among those that share a stage out; of experts, among those that hold the same ones.
struct ShardPlace {
  PartOfAll of_all, of_experts;
  int experts = 0;  // which it holds
};

/// Of all elements one after another, and of those of experts, the replica's part: by parameter the
/// elements of it that are in the part, which may be none. Statistics are no weights: every replica
/// makes them.
std::vector<ElementRange> shard_of(const StageParameters& parameters, const ShardPlace& place);

/// How a stage of a rank is shared out.
struct StageShards {
  std::vector<ShardPlace> replicas;  // those that share it, in order
  std::size_t own = 0;               // this rank's among them
  /// Of the replicas that have the same part, this one's is in sums and checkpoints.
  bool counts = true;
};
/// By the Program's UNSHARDs, all of which are of the same replicas; nullopt: it is not.
/// `experts_differ_along_context`: ranks of another place along cp hold other experts.
std::optional<StageShards> shards_of(const Program& program, StageId stage, RankId rank,
                                     bool experts_differ_along_context);

/// Sets what lies outside of the range to 0 in each array of the part.
void keep_only(const ElementRange& range, GradientPart& part);
/// Each array of the part, of the range's elements alone, becomes one of `size` elements, 0
/// elsewhere.
void spread(const ElementRange& range, std::size_t size, GradientPart& part);

}  // namespace pipewright::exec
