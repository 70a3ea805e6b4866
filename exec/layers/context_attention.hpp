// What attention brings together where ranks have a part of every sequence each (context
// parallelism): the keys and values of all ranks, in front of it and once more in I, so that a rank
// keeps its own alone between the two; and the sums of their gradients, of which each rank wants
// its own. Attention by queries, keys and values, and latent attention. Or keys and values, and
// after them the sums, go round the ranks block by block (exec/layers/ring_ops.hpp), beside the
// computation with the block before. One thread at a time.
#pragma once

#include <string>
#include <vector>

#include "exec/layers/context_group.hpp"
#include "exec/layers/context_ops.hpp"
#include "exec/layers/layer.hpp"
#include "exec/layers/ring_ops.hpp"

namespace pipewright::exec {

class ContextAttention {
 public:
  /// Of a layer at the site, which has a group along cp, with this rank's heads.
  ContextAttention(const LayerSite& site, const AttentionShape& own);

  const ContextShape& shape() const { return shape_; }

  /// Keys and values of all ranks, from own qkv, as forward() and backward_input() take them.
  /// Pauses.
  Task<Buffer> gather_keys(const Buffer& qkv) const;
  void forward(const Buffer& qkv, const Buffer& keys, float* probabilities, float* context) const;
  /// Of I; they outlive it.
  struct Arrays {
    const Buffer &qkv, &keys, &probabilities, &dcontext, &dqkv;
  };
  /// Fills dqkv. Pauses.
  Task<void> backward_input(Arrays arrays) const;

 private:
  Task<void> gather_round_the_ring(float* keys) const;
  float* keys_of(int member, float* keys) const;
  void go_back(const Arrays& arrays, const ContextQueries& queries, float* dkeys) const;

  TensorOps& ops_;
  ContextGroup& group_;
  const ContextShape shape_;
  const std::string name_;  // of the calls
  std::vector<ChainTurn> turns_;
};

/// Attention by queries, keys and values in fast numerics, where keys and values go round.
class RingAttention {
 public:
  RingAttention(const LayerSite& site, const AttentionShape& own);

  /// Floats that a rank keeps for I beside qkv and the context.
  std::size_t log_sums() const;
  /// Fills the last two. Pauses; the buffers outlive it.
  Task<void> forward(const Buffer& qkv, const Buffer& context, const Buffer& log_sums) const;
  /// Of I; they outlive it.
  struct Arrays {
    const Buffer &qkv, &context, &log_sums, &dcontext, &dqkv;
  };
  /// Fills dqkv. Pauses.
  Task<void> backward_input(Arrays arrays) const;

 private:
  Buffer own_keys(const Buffer& qkv) const;
  RingOfMembers new_hop(const std::string& number) const;
  RingShape block(int hops) const { return {shape_, group_.place_after(hops)}; }

  TensorOps& ops_;
  ContextGroup& group_;
  const ContextShape shape_;
  const std::string name_;  // of the calls
};

/// The same of latent attention.
class ContextLatentAttention {
 public:
  ContextLatentAttention(const LayerSite& site, const LatentShape& own);

  const ContextLatentShape& shape() const { return shape_; }

  /// From own keys and values, and rotary keys. Pauses.
  Task<Buffer> gather_keys(const Buffer& keys_values, const Buffer& rotary_key) const;
  void forward(const Buffer& queries, const Buffer& keys, float* probabilities,
               float* context) const;
  /// Of I; they outlive it. The last three are filled.
  struct Arrays {
    const Buffer &queries, &keys, &probabilities, &dcontext;
    const Buffer &dqueries, &dkeys_values, &drotary_keys;
  };
  /// Pauses.
  Task<void> backward_input(Arrays arrays) const;

 private:
  void go_back(const Arrays& arrays, int which, float* dkeys) const;

  TensorOps& ops_;
  ContextGroup& group_;
  const ContextLatentShape shape_;
  const std::string name_;  // of the calls
  std::vector<ChainTurn> turns_;
};

}  // namespace pipewright::exec
