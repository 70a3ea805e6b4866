// What a stage holds of a micro-batch while it trains, found by going through the F, I and W of the
// executor's own layers on a device that only counts (exec/layers/metered_ops.hpp): what two layers
// share is held once (a relu's output is the next layer's input), I lets go of what only it needed
// and keeps gradients for W, and an action needs more while it runs than it leaves.
//
// Pure functions; bytes. Elements have the model's size, token ids 4 bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/model/model.hpp"
#include "core/model/recompute.hpp"
#include "core/model/tensor_split.hpp"
#include "core/plan/plan.hpp"
#include "exec/layers/divided/divided_parts.hpp"
#include "exec/layers/rank_groups.hpp"

namespace pipewright::planner {

/// Of one action: what it adds to what is held (W: less than 0), and the most that it holds at any
/// moment beyond what was there before it. Includes the message that it makes, until that is sent.
struct ActionBytes {
  std::int64_t change = 0, most = 0;
};

struct StageBuffers {
  ActionBytes f, i, w;

  /// The most of a B, which is I and then W.
  std::int64_t most_in_b() const { return std::max(i.most, i.change + w.most); }
};

/// How many rows come to the experts of a rank, where replicas divide them.
enum class RowsToExperts : std::uint8_t { Even, Most };

/// `recompute` by layer of the model; empty: nothing is recomputed.
/// `ranks`: so many divide its layers.
StageBuffers buffers_of(const Model& model, const StagePlan& stage, int micro_batch_size,
                        std::span<const LayerRecompute> recompute = {},
                        const StageDivision& ranks = {}, RowsToExperts rows = RowsToExperts::Even,
                        exec::Numerics numerics = exec::Numerics::Fast);

/// The bytes of an F without a backward (run --mode evaluate, predict), which keeps nothing:
/// `change` is 0.
ActionBytes forward_alone(const Model& model, const StagePlan& stage, int micro_batch_size,
                          std::span<const LayerRecompute> recompute, const StageDivision& ranks,
                          exec::Numerics numerics, exec::RunMode mode);

}  // namespace pipewright::planner
