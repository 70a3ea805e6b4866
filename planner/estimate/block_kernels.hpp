// What a block's time on one rank is made of: its products, its attention, its messages
// (docs/cost-model.md). Shared by the time of a block and by its parts. Pure functions; seconds.
#pragma once

#include "planner/estimate/block_work.hpp"

namespace pipewright::planner {

struct KernelSeconds {
  double forward = 0, backward = 0;
  double weight = 0;  // of `backward`

  KernelSeconds operator+(const KernelSeconds& other) const {
    return {forward + other.forward, backward + other.backward, weight + other.weight};
  }
};
/// Those of the block's products from `first` to before `end`, without adapters
/// (planner/estimate/adapters.hpp). Frozen weights have no gradient, so the backward of such a
/// product takes about as long as its forward.
KernelSeconds products_seconds(const DeviceRates& device, const BlockWork& work, int first,
                               int end);
/// Scores and what is computed from them, or the scan.
KernelSeconds mixer_core_seconds(const DeviceRates& device, const BlockWork& work);

/// What computing a whole block again leaves out of its forward: products whose results are kept,
/// or that nothing reads.
struct LeftOutOfRecompute {
  double entering = 0, after_mixer = 0, last = 0;  // products before the scores or the scan; …
  double returned = 0;  // of a forward's messages of experts, the share that is not sent again

  double sum() const { return entering + after_mixer + last; }
};
LeftOutOfRecompute left_out_of_recompute(const DeviceRates& device,
                                         const FrameworkTraits& framework, const BlockWork& work);

/// Of a block whose framework selects operators: the products that are computed again, forward.
/// Kept is each second one, in the order of the layers: of queries, keys and values those two, the
/// gate, and the last; not what experts' products give, which is another operator.
struct OperatorsAgain {
  double entering = 0, after_mixer = 0, feed_forward = 0;

  double sum() const { return entering + after_mixer + feed_forward; }
};
OperatorsAgain operators_again(const DeviceRates& device, const Architecture& model,
                               const BlockWork& work);

/// What the framework computes again of a block, but for whole blocks and scores.
double recomputed_parts_seconds(const DeviceRates& device, const Architecture& model,
                                const FrameworkTraits& framework, const ParallelSetup& setup,
                                BlockKind kind);

/// Kernels that the host starts for a block, one operator at a time; and those that an operator
/// starts in a loop, without the framework's work for each (kLaunchInLoop).
struct KernelCounts {
  double forward = 0, backward = 0;
  double forward_in_loops = 0, backward_in_loops = 0;
};
KernelCounts kernel_counts(const Architecture& model, const FrameworkTraits& framework,
                           const ParallelSetup& setup, const BlockWork& work);

/// Of the host, to start so many kernels one operator at a time; none where a step is one graph.
double host_seconds(const FrameworkTraits& framework, double kernels);

/// Whether a block ends with messages that make the ranks of a group wait for the last of them:
/// all-reduces, and what goes to experts and comes back.
bool waits_for_group(const ParallelSetup& setup, bool with_experts);
/// In which host and device overlap (kOverlapOrder); 1: they take turns.
double overlap_order(const FrameworkTraits& framework, bool waits);

/// Messages of one direction. Those of tensor parallel ranks in the order of the direction: before
/// attention (backward: the feed-forward part) and after it, before the other half and after it.
struct MessageSeconds {
  std::array<double, 4> tensor{};
  double experts = 0, context = 0;  // all of each kind together
  double adapters = 0;              // of tensor parallel ranks, too

  double of_tensor() const { return tensor[0] + tensor[1] + tensor[2] + tensor[3] + adapters; }
  double sum() const { return of_tensor() + experts + context; }
};
struct BlockMessages {
  MessageSeconds forward, backward;
};
/// Under sequence parallelism a gather before and a scatter after each half that the block has, of
/// experts only where ranks divide each one; else an all-reduce after each half.
BlockMessages message_seconds(const NodeRates& node, int devices_per_node,
                              const ParallelSetup& setup, const BlockWork& work);

}  // namespace pipewright::planner
