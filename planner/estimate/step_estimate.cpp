#include "planner/estimate/step_estimate.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "planner/estimate/block_kernels.hpp"
#include "planner/estimate/gradient_exchange.hpp"
#include "planner/estimate/layer_seconds.hpp"
#include "planner/estimate/rank_places.hpp"
#include "planner/estimate/stage_messages.hpp"

namespace pipewright::planner {

NodeRates slowest_node(const Machine& machine, const ParallelSetup& setup, int rank) {
  if (machine.nodes.size() == 1) return machine.nodes.front();
  const int per_node = machine.devices_per_node, each = devices_of_rank(setup);
  NodeRates slow = machine.node(first_device(setup, rank, 0) / per_node);
  int seen = -1;  // nodes come in ascending order
  const auto add = [&](int n) {
    if (n <= seen) return;
    seen = n;
    const NodeRates& node = machine.node(n);
    const double memory = std::min(slow.device.memory_bytes, node.device.memory_bytes);
    if (node.device.product_rate(2) < slow.device.product_rate(2)) {
      slow.device = node.device;
    }
    slow.device.memory_bytes = memory;
    slow.inside_bytes_per_second =
        std::min(slow.inside_bytes_per_second, node.inside_bytes_per_second);
    slow.network_bytes_per_second =
        std::min(slow.network_bytes_per_second, node.network_bytes_per_second);
  };
  for (int replica = 0; replica < setup.data; ++replica) {
    const int first = first_device(setup, rank, replica);
    for (int n = first / per_node; n <= (first + each - 1) / per_node; ++n) add(n);
  }
  return slow;
}

EndSeconds embedding_seconds(const Architecture& model, const FrameworkTraits& framework,
                             const NodeRates& node, const Machine& machine,
                             const ParallelSetup& setup, double rows) {
  const double numbers = rows * model.hidden;
  const double message = setup.tensor > 1 ? 2 * numbers : 0;
  const double table = static_cast<double>(model.vocabulary) * model.hidden / setup.tensor;
  const double host = host_seconds(framework, framework.embedding_kernels);
  const double order = overlap_order(framework, false);
  const double gradient =
      stream_seconds(node.device, 8 * numbers + framework.accumulate_bytes * table);
  return {with_launches(stream_seconds(node.device, 4 * numbers), host / 2, order) +
              all_reduce_seconds(node, machine.devices_per_node, {setup.tensor, 1}, message),
          0, model.lora.is_used() ? 0 : with_launches(gradient, host / 2, order)};
}

namespace {

EndSeconds one_head_seconds(const Architecture& model, const FrameworkTraits& framework,
                            const NodeRates& node, const Machine& machine,
                            const ParallelSetup& setup, double rows) {
  const double columns = static_cast<double>(model.vocabulary) / setup.tensor;
  Matmul logits{rows, columns, static_cast<double>(model.hidden)};
  const double slower = framework.pads_vocabulary ? 1 : slower_unaligned(columns);
  const double message = setup.tensor > 1 ? 2 * rows * model.hidden : 0;
  const double loss = stream_seconds(node.device, framework.loss_bytes_per_logit * rows * columns);
  if (framework.fuses_accumulation) logits.sum_bytes = framework.accumulate_bytes;
  const double sums =
      framework.fuses_accumulation ? 0 : framework.accumulate_bytes * columns * model.hidden;
  const double weight = model.lora.is_used() ? 0
                                             : slower * matmul_weight_seconds(node.device, logits) +
                                                   stream_seconds(node.device, sums);
  const double input = slower * matmul_input_seconds(node.device, logits) + loss / 2;
  // Two thirds of the kernels are the forward's, with the loss.
  const double host = host_seconds(framework, framework.head_kernels);
  const double order = overlap_order(framework, false);
  const double both = with_launches(input + weight, host / 3, order);
  const double reduce =
      all_reduce_seconds(node, machine.devices_per_node, {setup.tensor, 1}, message);
  const double forward = slower * matmul_seconds(node.device, logits) + loss / 2;
  return {with_launches(forward, 2 * host / 3, order), both * input / (input + weight) + reduce,
          both * weight / (input + weight)};
}

/// A block for a further token, with the product in front of it.
EndSeconds further_block_seconds(const Architecture& model, const FrameworkTraits& framework,
                                 const NodeRates& node, const Machine& machine,
                                 const ParallelSetup& setup, double rows) {
  const double hidden = model.hidden;
  const Matmul both{rows, hidden / setup.tensor, 2 * hidden};
  const double weight = matmul_weight_seconds(node.device, both);
  const BlockSeconds block = block_seconds(model, framework, node, machine.devices_per_node, setup,
                                           model.kind_of_further());
  return EndSeconds{matmul_seconds(node.device, both),
                    matmul_backward_seconds(node.device, both) - weight, weight} +
         EndSeconds{block.forward, block.backward - block.weight, block.weight};
}

}  // namespace

EndSeconds head_seconds(const Architecture& model, const FrameworkTraits& framework,
                        const NodeRates& node, const Machine& machine, const ParallelSetup& setup,
                        double rows) {
  const EndSeconds head = one_head_seconds(model, framework, node, machine, setup, rows);
  if (model.further_tokens == 0) return head;
  const EndSeconds further =
      head + further_block_seconds(model, framework, node, machine, setup, rows);
  return head + further * model.further_tokens;
}

namespace {

/// One micro-batch through every pipeline rank, and layers on each, or on all where nodes are
/// equal.
struct RankTimes {
  std::vector<double> seconds;
  std::vector<LayerSeconds> layers;

  const LayerSeconds& layers_of(int rank) const {
    return layers.size() == 1 ? layers.front() : layers[static_cast<std::size_t>(rank)];
  }
};

RankTimes times_of_ranks(const Architecture& model, const FrameworkTraits& framework,
                         const Machine& machine, const ParallelSetup& setup, KnownLayers* known) {
  const bool equal = machine.nodes.size() == 1;
  RankTimes times;
  times.seconds.reserve(static_cast<std::size_t>(setup.pipeline));
  int first = 0;
  for (int rank = 0; rank < setup.pipeline; ++rank) {
    if (rank == 0 || !equal) {
      const NodeRates node = slowest_node(machine, setup, rank);
      times.layers.push_back(known != nullptr
                                 ? known->of(model, framework, machine, setup, node)
                                 : layer_seconds(model, framework, machine, setup, node));
    }
    const LayerSeconds& layers = times.layers.back();
    const LayerRange blocks = blocks_in(model, first, blocks_of(model, setup, rank));
    first += blocks.blocks.all();
    double sum = layers.forward(blocks) + layers.backward(blocks);
    if (rank == 0) sum += layers.embedding.sum();
    if (rank == setup.pipeline - 1) sum += layers.head.sum();
    times.seconds.push_back(sum);
  }
  return times;
}

}  // namespace

double update_seconds(const FrameworkTraits& framework, const ParallelSetup& setup,
                      const NodeRates& node, const RangeWeights& weights) {
  const double own = setup.zero > 0 ? weights.trained.shared(setup) : weights.trained.all;
  return stream_seconds(node.device, framework.optimizer_bytes * own);
}

double tied_seconds(const Architecture& model, const FrameworkTraits& framework,
                    const Machine& machine, const ParallelSetup& setup, const NodeRates& node) {
  if (!model.tied_head || setup.pipeline == 1 || !setup.tied_head_reduced) return 0;
  if (model.lora.is_used()) return 0;  // neither has a gradient
  const Group ends = ends_group(setup, machine.devices_per_node);
  const double table = static_cast<double>(model.vocabulary) * model.hidden / setup.tensor;
  return all_reduce_seconds(node, machine.devices_per_node, ends,
                            framework.tied_gradient_bytes * table);
}

StepEstimate estimate_step(const Architecture& model, const FrameworkTraits& framework,
                           const Machine& machine, const ParallelSetup& setup, KnownLayers* known) {
  StepEstimate estimate;
  const RankTimes times = times_of_ranks(model, framework, machine, setup, known);
  estimate.rank_seconds = times.seconds;
  const std::vector<double>& ranks = estimate.rank_seconds;
  const double most = *std::max_element(ranks.begin(), ranks.end());
  const PipelineSeconds pipeline =
      pipeline_seconds(framework, setup, ranks, border_seconds(model, framework, machine, setup));
  estimate.busy = setup.micro_batches * most;
  estimate.pipeline = pipeline.all;
  estimate.transfers = pipeline.transfers;
  double tied = 0;
  LayerRange before;
  for (int rank = 0; rank < setup.pipeline; ++rank) {
    const LayerRange range = range_of_rank(model, setup, rank);
    // Ranks in the middle are mostly alike.
    if (rank > 0 && range == before && machine.nodes.size() == 1) continue;
    before = range;
    const NodeRates node = slowest_node(machine, setup, rank);
    const RangeWeights weights = exchanged_weights(model, framework, setup, range);
    estimate.gradient_reduction =
        std::max(estimate.gradient_reduction,
                 counted_exchange_seconds(model, framework, machine, setup, node, range, weights,
                                          times.layers_of(rank)));
    estimate.update = std::max(estimate.update, update_seconds(framework, setup, node, weights));
    tied = std::max(tied, tied_seconds(model, framework, machine, setup, node));
  }
  estimate.tied_reduction = tied;
  estimate.update += framework.step_overhead_seconds;
  estimate.step =
      estimate.pipeline + estimate.gradient_reduction + estimate.tied_reduction + estimate.update;
  return estimate;
}

}  // namespace pipewright::planner
