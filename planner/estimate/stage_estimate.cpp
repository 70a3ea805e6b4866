#include "planner/estimate/stage_estimate.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "planner/estimate/gradient_exchange.hpp"
#include "planner/estimate/layer_seconds.hpp"

namespace pipewright::planner {

namespace {

Nanoseconds nanoseconds(double seconds) {
  return Nanoseconds(static_cast<std::int64_t>(std::llround(seconds * 1e9)));
}

Bytes bytes(double value) { return Bytes(static_cast<std::int64_t>(std::llround(value))); }

LayerSeconds layers_on(const EstimateContext& context, const ParallelSetup& setup,
                       const NodeRates& node) {
  const auto& [model, framework, machine, known] = context;
  return known ? known->of(model, framework, machine, setup, node)
               : layer_seconds(model, framework, machine, setup, node);
}

LayerRange range_of(const Architecture& model, const StagePlan& stage) {
  const int last = model.blocks + 1;
  const int first_block = std::max(stage.first_layer, 1) - 1;
  const int end_block = std::min(stage.end_layer, last) - 1;
  LayerRange range = blocks_in(model, first_block, std::max(0, end_block - first_block));
  range.embedding = stage.first_layer == 0;
  range.head = stage.end_layer > last;
  return range;
}

/// The first stage of each rank stands for what a rank has once.
std::vector<bool> is_first_of_rank(std::span<const StagePlan> stages, int ranks) {
  std::vector<bool> seen(static_cast<std::size_t>(ranks), false), first;
  for (const StagePlan& stage : stages) {
    const auto rank = static_cast<std::size_t>(stage.rank.value);
    first.push_back(!seen[rank]);
    seen[rank] = true;
  }
  return first;
}

/// The exposed time of a stage's part in the end of a step.
double update_of(const EstimateContext& context, const ParallelSetup& setup, const NodeRates& node,
                 const LayerRange& range, const LayerSeconds& layers) {
  const auto& [model, framework, machine, known] = context;
  const RangeWeights weights = exchanged_weights(model, framework, setup, range);
  const double reduction =
      counted_exchange_seconds(model, framework, machine, setup, node, range, weights, layers);
  const double tied =
      range.embedding != range.head ? tied_seconds(model, framework, machine, setup, node) : 0;
  return reduction + tied + update_seconds(framework, setup, node, weights);
}

/// Inputs and output gradients of a block's products with weights that are trained: with LoRA the
/// adapters'. What a wide product of others reads is kept divided where the sequence is.
double bytes_until_weight(const EstimateContext& context, const ParallelSetup& setup,
                          BlockKind kind) {
  const BlockWork work = block_work(context.model, context.framework, setup, kind);
  const BlockSizes sizes = block_sizes(context.model, setup);
  double bytes = 0;
  for (int k = 0; k < work.adapters_used; ++k) {
    const Adapter& adapter = work.adapters[static_cast<std::size_t>(k)];
    for (const Matmul& product : {adapter.into, adapter.out})
      bytes += 2 * product.rows * (product.depth + product.columns);
  }
  if (work.is_frozen) return bytes;
  for (int p = 0; p < work.products_used; ++p) {
    const Matmul& product = work.products[static_cast<std::size_t>(p)];
    const bool is_wide = product.depth == context.model.hidden;
    bytes += product.bytes * product.count * product.rows *
             (product.depth / (is_wide ? sizes.outside : 1) + product.columns);
  }
  return bytes;
}

struct KeptActivations {
  double block = 0, until_weight = 0;
};

using KeptByKind = std::array<KeptActivations, kBlockKinds>;

KeptByKind kept_by_kind(const EstimateContext& context, const ParallelSetup& setup) {
  KeptByKind kept;
  const Architecture& model = context.model;
  for_each_kind(blocks_in(model, 0, model.blocks).blocks, [&](BlockKind kind, int /*count*/) {
    kept[kind.index()] = {kept_bytes(model, context.framework, setup, kind, setup.recompute.of_all),
                          bytes_until_weight(context, setup, kind)};
  });
  return kept;
}

void set_hops(CostTable& costs, const EstimateContext& context, const ParallelSetup& setup,
              int replicas) {
  const int devices = setup.tensor * setup.context;  // of a rank, all sending at once
  const auto route = [&](int from, int to) {
    const Hop hop = hop_between(context.machine, setup, from, to);
    return RouteCosts{nanoseconds(hop.latency), hop.bytes_per_second * devices, {}};
  };
  const int ranks = setup.pipeline;
  if (ranks == 1) return;
  const auto same = [](const RouteCosts& a, const RouteCosts& b) {
    return a.latency == b.latency && a.bytes_per_second == b.bytes_per_second;
  };
  costs.every_route = route(0, ranks - 1);
  bool equal = true;
  for (int rank = 0; rank + 1 < ranks; ++rank)
    equal = equal && same(route(rank, rank + 1), costs.every_route);
  if (equal) return;
  // Of thousands of ranks the edges are many, and none leads from one replica to another.
  costs.ranks_of_replica = replicas > 1 ? ranks : 0;
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to)
      costs.route_of_edge.push_back(from == to ? costs.every_route : route(from, to));
  }
}

/// Gradients that the replicas of a stage exchange: as with messages, those of all devices of a
/// rank together.
void set_parameters(CostTable& costs, const EstimateContext& context, const ParallelSetup& setup,
                    std::span<const StagePlan> stages) {
  const double each = context.framework.gradient_bytes * setup.tensor * setup.context;
  for (const StagePlan& stage : stages) {
    const RangeWeights weights = weights_of(context.model, setup, range_of(context.model, stage));
    costs.parameter_bytes.push_back(bytes(each * weights.trained.all));
  }
}

std::vector<std::int64_t> costs_on(const Architecture& model, const LayerSeconds& pieces) {
  const auto cost = [&](const LayerRange& range) {
    return nanoseconds(pieces.forward(range) + pieces.backward(range)).value;
  };
  std::vector<std::int64_t> costs{cost({.embedding = true})};
  for (int block = 0; block < model.blocks; ++block) {
    costs.push_back(cost(blocks_in(model, block, 1)));
  }
  costs.push_back(cost({.head = true}));
  return costs;
}

}  // namespace

LayerCosts estimated_layer_costs(const EstimateContext& context, const ParallelSetup& setup) {
  const RankNodes ranks = nodes_of_ranks(context.machine, setup);
  LayerCosts costs{{}, ranks.of_rank};
  for (const NodeRates& node : ranks.nodes)
    costs.of_kind.push_back(costs_on(context.model, layers_on(context, setup, node)));
  return costs;
}

std::vector<StageCosts> estimated_stage_costs(const EstimateContext& context,
                                              const ParallelSetup& setup,
                                              std::span<const StagePlan> stages) {
  const RankNodes ranks = nodes_of_ranks(context.machine, setup);
  std::vector<LayerSeconds> pieces_of;
  for (const NodeRates& node : ranks.nodes) pieces_of.push_back(layers_on(context, setup, node));
  const std::vector<bool> first = is_first_of_rank(stages, setup.pipeline);
  std::vector<StageCosts> costs;
  for (const StagePlan& stage : stages) {
    const auto place = static_cast<std::size_t>(ranks.place(static_cast<int>(stage.rank.value)));
    const NodeRates& node = ranks.nodes[place];
    const LayerSeconds& pieces = pieces_of[place];
    const LayerRange range = range_of(context.model, stage);
    StageCosts each;
    each.f = nanoseconds(pieces.forward(range));
    each.b = nanoseconds(pieces.backward(range));
    each.w = nanoseconds(pieces.weight(range));
    each.i = each.b - each.w;
    each.opt = nanoseconds(update_of(context, setup, node, range, pieces));
    if (first[costs.size()]) each.opt += nanoseconds(context.framework.step_overhead_seconds);
    costs.push_back(each);
  }
  return costs;
}

namespace {

/// Messages of a micro-batch that come to a stage from other ranks.
int incoming_of(std::span<const StagePlan> stages, std::size_t s) {
  const auto other = [&](std::size_t neighbour) {
    return neighbour < stages.size() && stages[neighbour].rank != stages[s].rank ? 1 : 0;
  };
  return (s > 0 ? other(s - 1) : 0) + other(s + 1);
}

}  // namespace

std::vector<StageMemory> estimated_stage_memory(const EstimateContext& context,
                                                const ParallelSetup& setup,
                                                std::span<const StagePlan> stages) {
  const auto& [model, framework, machine, known] = context;
  const KeptByKind kept_of = kept_by_kind(context, setup);
  std::vector<LayerRange> of_rank(static_cast<std::size_t>(setup.pipeline));
  for (const StagePlan& stage : stages)
    of_rank[static_cast<std::size_t>(stage.rank.value)].add(range_of(model, stage));
  const BlockSizes sizes = block_sizes(model, setup);
  const double one_head =
      model.lora.is_used()
          ? 0
          : 2 * sizes.rows * (model.hidden / sizes.outside + model.vocabulary / sizes.tensor);
  const double head_until_weight =
      one_head + model.further_tokens *
                     (one_head + bytes_until_weight(context, setup, model.kind_of_further()));
  const std::vector<bool> first = is_first_of_rank(stages, setup.pipeline);
  std::vector<StageMemory> memory;
  for (const StagePlan& stage : stages) {
    const LayerRange range = range_of(model, stage);
    double kept = 0, later = 0;
    for_each_kind(range.blocks, [&](BlockKind kind, int count) {
      kept += count * kept_of[kind.index()].block;
      later += count * kept_of[kind.index()].until_weight;
    });
    if (range.embedding) kept += embedding_kept_bytes(model, framework, setup);
    if (range.head) {
      kept += head_kept_bytes(model, framework, setup);
      later += head_until_weight;
    }
    const StateBytes state = state_bytes(model, framework, setup, range);
    double constant = state.sum();
    if (first[memory.size()]) {
      constant += passing_bytes(model, framework, setup,
                                of_rank[static_cast<std::size_t>(stage.rank.value)]);
    }
    constant += received_bytes(model, framework, setup, incoming_of(stages, memory.size()));
    memory.push_back({.f = bytes(kept),
                      .i = bytes(later) - bytes(kept),
                      .w = Bytes(0) - bytes(later),
                      .constant = bytes(constant),
                      .version = bytes(state.weights)});
  }
  return memory;
}

CostTable estimated_cost_table(const EstimateContext& context, const ParallelSetup& setup,
                               std::span<const StagePlan> stages, int replicas) {
  CostTable costs;
  costs.stages = estimated_stage_costs(context, setup, stages);
  costs.memory = estimated_stage_memory(context, setup, stages);
  const Bytes message = bytes(hop_bytes(context.model, setup) * setup.tensor * setup.context);
  costs.activation_bytes.assign(stages.size() - 1, message);
  costs.gradient_bytes = costs.activation_bytes;
  if (!setup.stage_replicas.empty()) set_parameters(costs, context, setup, stages);
  set_hops(costs, context, setup, replicas);
  return costs;
}

Bytes least_estimated_memory(const EstimateContext& context, const ParallelSetup& setup) {
  LayerRange all = blocks_in(context.model, 0, context.model.blocks);
  all.embedding = all.head = true;
  const double state = state_bytes(context.model, context.framework, setup, all).sum();
  return Bytes(static_cast<std::int64_t>(state / setup.pipeline));
}

namespace {

/// The least of all updates of a replica's ranks together. Its stages have at least as many bytes
/// to reduce as the whole model, and more starts. `nodes`: those of the ranks, `layers` on each.
double least_updates(const EstimateContext& context, const ParallelSetup& setup,
                     const std::vector<NodeRates>& nodes, const std::vector<LayerSeconds>& layers) {
  const auto& [model, framework, machine, known] = context;
  LayerRange all = blocks_in(model, 0, model.blocks);
  all.embedding = all.head = true;
  const RangeWeights weights = exchanged_weights(model, framework, setup, all);
  double least = -1;
  for (const NodeRates& node : nodes) {
    double reduction = 0;
    if (!setup.overlap_gradients) {
      reduction = reduction_seconds(framework, machine, setup, node, weights);
    } else if (nodes.size() == 1) {  // else the work of slower nodes hides more than is known here
      reduction = exposed_exchange_seconds(model, framework, machine, setup, node, all, weights,
                                           layers.front());
    }
    const double sum = reduction + update_seconds(framework, setup, node, weights);
    if (least < 0 || sum < least) least = sum;
  }
  return least + setup.pipeline * framework.step_overhead_seconds;
}

/// All layers of one sort, one micro-batch.
struct SortOfLayers {
  int count = 0;
  std::vector<double> seconds;  // of one of them, by kind of rank
  std::vector<double> on_way;   // of these, what a micro-batch's way up and down has: F and I

  double least() const { return *std::min_element(seconds.begin(), seconds.end()); }
  double least_on_way() const { return *std::min_element(on_way.begin(), on_way.end()); }
};

std::vector<SortOfLayers> sorts_of_layers(const Architecture& model,
                                          const std::vector<LayerSeconds>& layers_of_node,
                                          bool with_messages) {
  std::vector<SortOfLayers> layers;
  /// `messages`: those of a block; none of an end.
  const auto add = [&](int count, const LayerRange& one, auto messages) {
    SortOfLayers& sort = layers.emplace_back(SortOfLayers{count, {}, {}});
    for (const LayerSeconds& pieces : layers_of_node) {
      sort.seconds.push_back(pieces.forward(one) + pieces.backward(one) -
                             (with_messages ? 0 : messages(pieces)));
      sort.on_way.push_back(sort.seconds.back() - pieces.weight(one));
    }
  };
  for_each_kind(blocks_in(model, 0, model.blocks).blocks, [&](BlockKind kind, int count) {
    const auto messages = [&](const LayerSeconds& pieces) {
      return pieces.blocks[kind.index()].messages();
    };
    if (model.lora.is_used() && kind == model.kind_of(0)) {
      add(1, blocks_in(model, 0, 1), messages);
      --count;
    }
    if (count > 0) add(count, {.blocks = blocks_of_kind(kind, 1)}, messages);
  });
  const auto none = [](const LayerSeconds&) { return 0.0; };
  add(1, {.embedding = true}, none);
  add(1, {.head = true}, none);
  return layers;
}

/// What rank r does takes it at least slower(r) times as long as the fastest; so of two ranks of
/// which one is twice as slow the busier has two thirds of the work at least.
double ranks_as_fast_as_the_fastest(const std::vector<SortOfLayers>& layers, const RankNodes& ranks,
                                    int pipeline) {
  double sum = 0;
  for (int rank = 0; rank < pipeline; ++rank) {
    double slower = 0;
    for (const SortOfLayers& sort : layers) {
      const double least = sort.least();
      if (least <= 0) continue;
      const double ratio = sort.seconds[static_cast<std::size_t>(ranks.place(rank))] / least;
      slower = slower == 0 ? ratio : std::min(slower, ratio);
    }
    sum += slower > 1 ? 1 / slower : 1;
  }
  return sum;
}

}  // namespace

std::int64_t least_estimated_step(const EstimateContext& context, const ParallelSetup& setup,
                                  bool with_messages) {
  const RankNodes ranks = nodes_of_ranks(context.machine, setup);
  std::vector<LayerSeconds> layers_of_node;
  for (const NodeRates& node : ranks.nodes)
    layers_of_node.push_back(layers_on(context, setup, node));
  const std::vector<SortOfLayers> layers =
      sorts_of_layers(context.model, layers_of_node, with_messages);
  double least = 0, way = 0;
  for (const SortOfLayers& sort : layers) {
    least += sort.count * sort.least();
    way += sort.count * sort.least_on_way();
  }
  // Each stage's times are rounded to whole nanoseconds, by half of one at most, and so is each of
  // the messages of a block that are left out, with all that is computed again less than 24.
  const double rounding = (with_messages ? 3e-9 : 15e-9) * layers_of(context.model);
  const double share = ranks_as_fast_as_the_fastest(layers, ranks, setup.pipeline);
  const double work = (least - rounding) * setup.micro_batches;
  const double updates = least_updates(context, setup, ranks.nodes, layers_of_node) - rounding;
  const double step = std::max(
      {0.0, work / share, (work + std::max(0.0, updates)) / setup.pipeline, way - rounding});
  return static_cast<std::int64_t>(std::floor(step * 1e9));
}

}  // namespace pipewright::planner
