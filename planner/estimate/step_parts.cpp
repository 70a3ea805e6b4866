#include "planner/estimate/step_parts.hpp"

#include <algorithm>

#include "planner/estimate/adapters.hpp"
#include "planner/estimate/rank_places.hpp"

namespace pipewright::planner {

namespace {

bool alike(const NodeRates& a, const NodeRates& b) {
  return a.device.name == b.device.name && a.device.peak_flops == b.device.peak_flops &&
         a.device.memory_bytes == b.device.memory_bytes &&
         a.inside_bytes_per_second == b.inside_bytes_per_second &&
         a.network_bytes_per_second == b.network_bytes_per_second;
}

}  // namespace

bool alike(const RankNodes& a, const RankNodes& b) {
  return a.of_rank == b.of_rank &&
         std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(),
                    [](const NodeRates& x, const NodeRates& y) { return alike(x, y); });
}

RankNodes nodes_of_ranks(const Machine& machine, const ParallelSetup& setup) {
  if (machine.nodes.size() == 1) return {machine.nodes, {}};
  RankNodes ranks;
  for (int rank = 0; rank < setup.pipeline; ++rank) {
    const NodeRates node = slowest_node(machine, setup, rank);
    const auto known = std::find_if(ranks.nodes.begin(), ranks.nodes.end(),
                                    [&](const NodeRates& other) { return alike(other, node); });
    ranks.of_rank.push_back(static_cast<int>(known - ranks.nodes.begin()));
    if (known == ranks.nodes.end()) ranks.nodes.push_back(node);
  }
  return ranks;
}

int BlockCounts::with_experts() const {
  int sum = 0;
  for_each_kind(*this, [&](BlockKind kind, int count) { sum += kind.has_experts() ? count : 0; });
  return sum;
}

BlockCounts blocks_of_kind(BlockKind kind, int count) {
  BlockCounts counts;
  counts.of_kind[kind.index()] = count;
  return counts;
}

void LayerRange::add(const LayerRange& other) {
  for (std::size_t k = 0; k < kBlockKinds; ++k) blocks.of_kind[k] += other.blocks.of_kind[k];
  embedding = embedding || other.embedding;
  head = head || other.head;
  first_block = first_block || other.first_block;
}

LayerRange blocks_in(const Architecture& model, int first, int count) {
  LayerRange range;
  range.first_block = first == 0 && count > 0;
  if (model.changes_once()) {  // a search asks for every stage of every configuration
    const int dense = model.experts.count > 0 ? model.experts.dense_blocks : model.blocks;
    const int others = std::max(0, first + count - std::max(first, dense));
    range.blocks.of_kind[kDenseBlock.index()] = count - others;
    range.blocks.of_kind[kExpertBlock.index()] = others;
    return range;
  }
  for (int block = first; block < first + count; ++block)
    ++range.blocks.of_kind[model.kind_of(block).index()];
  return range;
}

LayerRange range_of_rank(const Architecture& model, const ParallelSetup& setup, int rank) {
  int first = 0;
  for (int r = 0; r < rank; ++r) first += blocks_of(model, setup, r);
  LayerRange range = blocks_in(model, first, blocks_of(model, setup, rank));
  range.embedding = rank == 0;
  range.head = rank == setup.pipeline - 1;
  return range;
}

RangeWeights weights_of(const Architecture& model, const ParallelSetup& setup,
                        const LayerRange& range) {
  RangeWeights weights;
  weights.messages_of_experts = range.blocks.with_experts();
  weights.messages = range.blocks.all() + (range.embedding ? 1 : 0) + (range.head ? 1 : 0);
  for_each_kind(range.blocks, [&](BlockKind kind, int count) {
    weights.of_experts += count * expert_parameters_of_rank(model, setup, kind);
    weights.all += count * block_parameters_of_rank(model, setup, kind);
  });
  const double table = static_cast<double>(model.vocabulary) * model.hidden / setup.tensor;
  if (range.embedding) {
    weights.all +=
        table + (model.learned_positions ? static_cast<double>(model.sequence) : 0) * model.hidden;
  }
  if (range.head) {
    const BlockKind kind = model.kind_of_further();
    const double hidden = model.hidden, norm = norm_parameters(model);
    const int further = model.further_tokens;
    weights.messages += further;
    weights.messages_of_experts += kind.has_experts() ? further : 0;
    weights.of_experts += further * expert_parameters_of_rank(model, setup, kind);
    weights.all += norm + further * (3 * norm + 2 * hidden * hidden / setup.tensor +
                                     block_parameters_of_rank(model, setup, kind));
  }
  if (range.head && (!model.tied_head || !range.embedding)) weights.all += table;
  if (model.lora.is_used()) {
    weights.trained.messages = range.blocks.all();
    weights.trained.all = weights.trained.messages * adapter_parameters_of_rank(model, setup);
    weights.all += weights.trained.all;
  } else {
    weights.trained = weights;
  }
  return weights;
}

double WeightCount::shared(const ParallelSetup& setup) const {
  const double replicas = static_cast<double>(setup.data) * setup.context;
  return setup.shard_groups() *
         ((all - of_experts) / replicas + of_experts / setup.expert_replicas());
}

double hop_bytes(const Architecture& model, const ParallelSetup& setup) {
  return 2 * block_sizes(model, setup).rows * model.hidden / setup.tensor;
}

double received_bytes(const Architecture& model, const FrameworkTraits& framework,
                      const ParallelSetup& setup, int incoming) {
  if (!framework.keeps_received) return 0;
  return static_cast<double>(incoming) * setup.micro_batches * hop_bytes(model, setup);
}

Hop hop_between(const Machine& machine, const ParallelSetup& setup, int from, int to) {
  const int stride = pipeline_stride(setup);
  const int per_node = machine.devices_per_node;
  const NodeRates one = slowest_node(machine, setup, from),
                  other = slowest_node(machine, setup, to);
  const auto of_message = [](const NodeRates& node) {
    return node.inside_bytes_per_second * node.device.message_share;
  };
  const double message = std::min(of_message(one), of_message(other));
  if (share_nodes(setup, per_node, from, to)) return {kNetworkStart, message};
  const double network = std::min(one.network_bytes_per_second, other.network_bytes_per_second);
  return {kNetworkStart, std::min(message, network / std::min(stride, per_node))};
}

}  // namespace pipewright::planner
