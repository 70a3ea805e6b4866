#include "planner/estimate/adapters.hpp"

#include <algorithm>

namespace pipewright::planner {

namespace {

/// Inputs of layers divided by columns that adapters keep: those of queries, keys and values read
/// the same one.
int inputs_by_columns(const Architecture& model) {
  return (is_adapted(model, LoraPlace::Qkv) ? 1 : 0) +
         (is_adapted(model, LoraPlace::First) ? 1 : 0);
}

}  // namespace

void add_adapters(BlockWork& work, const Architecture& model, const BlockSizes& sizes) {
  const double rows = sizes.rows, rank = model.lora.rank, tensor = sizes.tensor;
  for (const AdaptedLayer& layer : adapted_layers(model)) {
    Adapter& adapter = work.adapters[static_cast<std::size_t>(work.adapters_used++)];
    adapter.place = layer.place;
    const bool by_rows = adapter.follows_rows();
    const double in = by_rows ? layer.in / tensor : layer.in;
    adapter.into = {rows, by_rows ? rank : rank / tensor, in};
    adapter.out = {rows, layer.out / tensor, rank};
    // A rank has the layer's result by columns, or all of it for its part of the rows.
    const double result = by_rows ? layer.out / sizes.outside : layer.out / tensor;
    work.forward_traffic += 6 * rows * result;
    work.backward_traffic += 6 * rows * in;
  }
}

KernelSeconds adapter_seconds(const DeviceRates& device, const BlockWork& work, int first,
                              int end) {
  KernelSeconds sum;
  for (int k = 0; k < work.adapters_used; ++k) {
    const Adapter& adapter = work.adapters[static_cast<std::size_t>(k)];
    if (adapter.product() < first || adapter.product() >= end) continue;
    for (const Matmul& product : {adapter.into, adapter.out}) {
      sum.forward += matmul_seconds(device, product);
      sum.backward += matmul_backward_seconds(device, product);
      sum.weight += matmul_weight_seconds(device, product);
    }
  }
  return sum;
}

double adapter_parameters_of_rank(const Architecture& model, const ParallelSetup& setup) {
  return lora_block_parameters(model) / setup.tensor;
}

double adapter_kept_bytes(const Architecture& model, const BlockSizes& sizes) {
  if (!model.lora.is_used()) return 0;
  const auto results = static_cast<double>(model.lora.target_modules.size()) * model.lora.rank;
  return 2 * sizes.rows * (results + inputs_by_columns(model) * static_cast<double>(model.hidden));
}

AdapterSeconds adapter_messages(const NodeRates& node, int devices_per_node,
                                const ParallelSetup& setup, const BlockWork& work) {
  const Group tensor{setup.tensor, 1};
  const auto gather = [&](double numbers) {
    return gather_seconds(node, devices_per_node, tensor, 2 * numbers);
  };
  const auto sum = [&](double numbers) {
    return all_reduce_seconds(node, devices_per_node, tensor, 2 * numbers);
  };
  AdapterSeconds sent;
  for (int k = 0; k < work.adapters_used; ++k) {
    const Adapter& adapter = work.adapters[static_cast<std::size_t>(k)];
    const double rows = adapter.into.rows, narrow = rows * adapter.out.depth;
    sent.backward += sum(narrow);
    if (adapter.follows_rows()) {
      const double result = rows * adapter.out.columns * setup.tensor;
      sent.forward += sum(narrow) + gather(result);
      if (setup.sequence_parallel) sent.backward += gather(result);
    } else {
      sent.forward += gather(narrow);
      if (!setup.sequence_parallel) sent.backward += sum(rows * adapter.into.depth);
    }
  }
  return sent;
}

AdapterCalls adapter_calls(const ParallelSetup& setup, const BlockWork& work) {
  AdapterCalls calls;
  if (setup.tensor == 1) return calls;
  for (int k = 0; k < work.adapters_used; ++k) {
    const bool by_rows = work.adapters[static_cast<std::size_t>(k)].follows_rows();
    calls.forward += by_rows ? 2 : 1;
    calls.backward += by_rows == setup.sequence_parallel ? 2 : 1;
  }
  return calls;
}

double backward_below_adapters(const DeviceRates& device, const BlockWork& work) {
  int lowest = work.products_used;
  for (int k = 0; k < work.adapters_used; ++k)
    lowest = std::min(lowest, work.adapters[static_cast<std::size_t>(k)].product());
  if (lowest == work.products_used) return 0;
  double seconds = products_seconds(device, work, 0, lowest + 1).backward;
  if (lowest + 1 >= work.mixer_products) seconds += mixer_core_seconds(device, work).backward;
  for (int k = 0; k < work.adapters_used; ++k) {
    const Adapter& adapter = work.adapters[static_cast<std::size_t>(k)];
    if (adapter.product() == lowest) seconds += matmul_input_seconds(device, adapter.into);
  }
  return seconds;
}

}  // namespace pipewright::planner
