// The adapters of LoRA (core/model/lora.hpp) on one rank: their two thin products, what they add to
// memory traffic, messages and kernels. docs/cost-model.md has the formulas. Pure functions;
// counts, bytes and seconds.
#pragma once

#include "planner/estimate/block_kernels.hpp"

namespace pipewright::planner {

/// Kernels of an adapter, counted in Megatron-Bridge's sources (src/megatron/bridge/peft:
/// lora_layers.py, LoRALinear.forward; utils.py, ParallelLinearAdapter.forward): the products of A
/// and B, the scale between them, and the sum with the layer's result; backward the two products of
/// each, the scale, and the sum of both gradients of the input. A frozen layer leaves out one of
/// its backward's products.
inline constexpr double kAdapterForwardKernels = 4, kAdapterBackwardKernels = 6;

/// The adapters of a block's layers, with their passes: the sum of both results (6 bytes a number),
/// and of both gradients of the input.
void add_adapters(BlockWork& work, const Architecture& model, const BlockSizes& sizes);

/// Those on the block's products from `first` to before `end`.
KernelSeconds adapter_seconds(const DeviceRates& device, const BlockWork& work, int first, int end);

/// Weights of the adapters of one block on a rank. A of a layer divided by columns is divided by
/// its rows, the rank; of one divided by rows by its columns; B always by its rows (the class
/// ParallelLinearAdapter).
double adapter_parameters_of_rank(const Architecture& model, const ParallelSetup& setup);

/// What adapters keep from a block's forward to its backward: A's result, 2 bytes a number, and its
/// input where nothing else needs it. Under sequence parallelism the input of a layer divided by
/// columns is kept as it was gathered (return_layernorm_output_gathered).
double adapter_kept_bytes(const Architecture& model, const BlockSizes& sizes);

/// Messages of one direction among tensor parallel ranks (ParallelLinearAdapter). Of a layer
/// divided by columns: forward a gather of A's result; backward the sum of its gradient, and
/// without sequence parallelism that of the gradient of A's input. Of one divided by rows: forward
/// the sum of A's result and a gather of B's; backward the sum of the gradient of A's result, and
/// under sequence parallelism a gather of that of B's.
struct AdapterSeconds {
  double forward = 0, backward = 0;
};
AdapterSeconds adapter_messages(const NodeRates& node, int devices_per_node,
                                const ParallelSetup& setup, const BlockWork& work);
/// How many these are.
struct AdapterCalls {
  int forward = 0, backward = 0;
};
AdapterCalls adapter_calls(const ParallelSetup& setup, const BlockWork& work);

/// Of the backward of the model's first block what nobody asks for: below its first adapter no
/// weight is trained, so the gradient of that layer's input and all before it are left out.
double backward_below_adapters(const DeviceRates& device, const BlockWork& work);

}  // namespace pipewright::planner
