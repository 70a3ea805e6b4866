// What replicas send one another in a step: gradients, and under ZeRO weights. Pure functions;
// seconds.
#pragma once

#include "planner/estimate/layer_seconds.hpp"

namespace pipewright::planner {

/// From ZeRO 2 on the layers' gradients are scattered, and under ZeRO 3 their weights gathered, one
/// layer, or one tensor (planner/estimate/tensor_exchange.hpp), after the other in every
/// micro-batch (arXiv:1910.02054 §7; PyTorch's FSDP).
bool exchanges_by_layer(const ParallelSetup& setup);

/// Whether then gradients stay whole until a step's last micro-batch, after which they are
/// scattered (no_sync() of PyTorch's FSDP).
bool sums_whole_gradients(const FrameworkTraits& framework, const ParallelSetup& setup);

/// weights_of(), in the messages that the framework exchanges them in.
RangeWeights exchanged_weights(const Architecture& model, const FrameworkTraits& framework,
                               const ParallelSetup& setup, const LayerRange& range);

/// All of a step, those of experts among the replicas that hold the same ones.
/// `weights`: exchanged_weights().
double reduction_seconds(const FrameworkTraits& framework, const Machine& machine,
                         const ParallelSetup& setup, const NodeRates& node,
                         const RangeWeights& weights);

/// The part of it that computation does not hide. Up to ZeRO 1 the backward of a micro-batch, the
/// last, hides the gradients, and a forward, the first, the weights. Layer by layer, the weights of
/// a block are gathered while the one before it computes, and the gradients of one are scattered
/// while the next computes; what the model's ends exchange, each direction's first gather and the
/// last scatter find nothing to hide behind. Tensor by tensor nothing does: the device has finished
/// before each message.
double exposed_exchange_seconds(const Architecture& model, const FrameworkTraits& framework,
                                const Machine& machine, const ParallelSetup& setup,
                                const NodeRates& node, const LayerRange& range,
                                const RangeWeights& weights, const LayerSeconds& layers);

/// What counts of it in a step: all, or with overlap that part.
double counted_exchange_seconds(const Architecture& model, const FrameworkTraits& framework,
                                const Machine& machine, const ParallelSetup& setup,
                                const NodeRates& node, const LayerRange& range,
                                const RangeWeights& weights, const LayerSeconds& layers);

}  // namespace pipewright::planner
