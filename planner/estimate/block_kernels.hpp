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
/// Those of the block's products from `first` to before `end`.
KernelSeconds products_seconds(const DeviceRates& device, const BlockWork& work, int first,
                               int end);
/// Scores and what is computed from them.
KernelSeconds attention_core_seconds(const DeviceRates& device, const BlockWork& work);

/// Messages of one direction, all of each kind together.
struct MessageSeconds {
  double tensor = 0, experts = 0, context = 0;

  double sum() const { return tensor + experts + context; }
};
MessageSeconds message_seconds(const NodeRates& node, int devices_per_node,
                               const ParallelSetup& setup, const BlockWork& work);

}  // namespace pipewright::planner
