#include "planner/estimate/gradient_exchange.hpp"

#include <algorithm>
#include <utility>

#include "planner/estimate/rank_places.hpp"
#include "planner/estimate/tensor_exchange.hpp"

namespace pipewright::planner {

namespace {

/// Weights that a group of replicas sends, and in how many messages where they are not one.
struct Sent {
  double count = 0;
  int messages = 0;
};

/// Those whose gradients replicas sum, and those that they gather under ZeRO, some of them once
/// more for what is computed again: in a group, and then each sums its part with the same rank
/// `across` the groups.
struct Exchanged {
  Group group, across;
  Sent trained, gathered, again;
};

/// Those of experts, and all others. A layer with experts sends both.
struct ExchangedWeights {
  Exchanged others, of_experts;
};

ExchangedWeights exchanged_by(const Machine& machine, const ParallelSetup& setup,
                              const RangeWeights& weights) {
  const Group all = replica_group(setup, machine.devices_per_node);
  const int holders = setup.expert_tensor() * setup.experts;  // of all experts
  const Group same_experts =
      holders == setup.tensor ? all : Group{setup.expert_replicas(), holders};
  const WeightCount& trained = weights.trained;
  // Below ZeRO 3 each replica holds all weights, and gathers what others have updated.
  const WeightCount& gathered = setup.zero >= 3 ? weights : trained;
  const auto in_groups = [&](Group group, const auto& sent) {
    // The replicas in as many groups that follow one another.
    const int groups = setup.shard_groups(), stride = group.stride;
    group.members /= groups;
    group.near = std::min(group.near, group.members);
    return Exchanged{group,
                     {groups, stride * group.members},
                     sent(trained),
                     sent(gathered),
                     sent(weights.again)};
  };
  return {in_groups(all,
                    [](const WeightCount& of) {
                      return Sent{of.all - of.of_experts, of.messages};
                    }),
          in_groups(same_experts, [](const WeightCount& of) {
            return Sent{of.of_experts, of.messages_of_experts};
          })};
}

bool exchanges_by_tensor(const FrameworkTraits& framework, const ParallelSetup& setup) {
  return framework.gathers_tensors && setup.zero >= 3;
}

/// One scatter of gradients or one gather of weights, in messages of a layer or a tensor.
double in_messages_seconds(const NodeRates& node, int per_node, const Group& group,
                           const Sent& sent, double bytes, double part_seconds) {
  if (group.members <= 1 || sent.count <= 0) return 0;
  return gather_seconds(node, per_node, group, bytes * sent.count) +
         (sent.messages - 1) * ring_start_seconds(per_node, group) +
         sent.messages * group.members * part_seconds;
}

/// The sums of what a group has scattered, a message for each layer or one for all.
double across_seconds(const NodeRates& node, int per_node, const Exchanged& part, double bytes,
                      int messages) {
  if (part.across.members <= 1 || part.trained.count <= 0) return 0;
  return all_reduce_seconds(node, per_node, part.across,
                            bytes * part.trained.count / part.group.members) +
         (messages - 1) * group_start_seconds(per_node, part.across);
}

/// Of one micro-batch, and once after the update.
struct LayerExchange {
  double scatter = 0, gather = 0, again = 0, updated = 0;
};

LayerExchange by_layer(const FrameworkTraits& framework, const Machine& machine,
                       const ParallelSetup& setup, const NodeRates& node,
                       const RangeWeights& weights) {
  const ExchangedWeights sent = exchanged_by(machine, setup, weights);
  const double part_seconds = exchanges_by_tensor(framework, setup) ? framework.part_seconds : 0;
  LayerExchange sum;
  for (const Exchanged& part : {sent.others, sent.of_experts}) {
    if (part.group.members * part.across.members <= 1) continue;
    const int per_node = machine.devices_per_node;
    const auto seconds = [&](const Sent& weights_sent, double bytes) {
      return in_messages_seconds(node, per_node, part.group, weights_sent, bytes, part_seconds);
    };
    sum.scatter +=
        seconds(part.trained, framework.gradient_bytes) +
        across_seconds(node, per_node, part, framework.gradient_bytes, part.trained.messages) +
        stream_seconds(node.device, framework.reduction_bytes * part.trained.count);
    sum.gather += seconds(part.gathered, 2);
    sum.again += seconds(part.again, 2);
    // The tensors that stay whole; the time of their few bytes is not counted.
    sum.updated += std::max(0, part.trained.messages - part.gathered.messages) *
                   part.group.members * part_seconds;
  }
  return sum;
}

/// Up to ZeRO 1: of gradients, and of the weights that other replicas have updated.
struct StepExchange {
  double gradients = 0, weights = 0;
  double sum() const { return gradients + weights; }
};

StepExchange once_a_step(const FrameworkTraits& framework, const Machine& machine,
                         const ParallelSetup& setup, const NodeRates& node,
                         const RangeWeights& weights) {
  const ExchangedWeights sent = exchanged_by(machine, setup, weights);
  StepExchange sum;
  for (const Exchanged& part : {sent.others, sent.of_experts}) {
    if (part.group.members * part.across.members <= 1) continue;
    const int per_node = machine.devices_per_node;
    const double bytes = framework.gradient_bytes * part.trained.count;
    sum.gradients += stream_seconds(node.device, framework.reduction_bytes * part.trained.count);
    if (setup.zero == 0) {
      sum.gradients += all_reduce_seconds(node, per_node, part.group, bytes);
      continue;
    }
    sum.gradients += gather_seconds(node, per_node, part.group, bytes) +
                     across_seconds(node, per_node, part, framework.gradient_bytes, 1);
    sum.weights += gather_seconds(node, per_node, part.group, 2 * part.gathered.count);
  }
  return sum;
}

}  // namespace

bool exchanges_by_layer(const ParallelSetup& setup) { return setup.zero >= 2; }

bool sums_whole_gradients(const FrameworkTraits& framework, const ParallelSetup& setup) {
  return framework.scatters_once && exchanges_by_layer(setup) && setup.micro_batches > 1;
}

namespace {

int scatters_of_step(const FrameworkTraits& framework, const ParallelSetup& setup) {
  return sums_whole_gradients(framework, setup) ? 1 : setup.micro_batches;
}

}  // namespace

RangeWeights exchanged_weights(const Architecture& model, const FrameworkTraits& framework,
                               const ParallelSetup& setup, const LayerRange& range) {
  return exchanges_by_tensor(framework, setup) ? weights_by_tensor(model, framework, setup, range)
                                               : weights_of(model, setup, range);
}

double reduction_seconds(const FrameworkTraits& framework, const Machine& machine,
                         const ParallelSetup& setup, const NodeRates& node,
                         const RangeWeights& weights) {
  if (exchanges_by_layer(setup)) {
    // Weights once, or for both directions of every micro-batch.
    const LayerExchange one = by_layer(framework, machine, setup, node, weights);
    const double scatters = scatters_of_step(framework, setup) * one.scatter;
    if (setup.zero < 3) return scatters + one.gather;
    return scatters + setup.micro_batches * (2 * one.gather + one.again) + one.updated;
  }
  return once_a_step(framework, machine, setup, node, weights).sum();
}

double exposed_exchange_seconds(const Architecture& model, const FrameworkTraits& framework,
                                const Machine& machine, const ParallelSetup& setup,
                                const NodeRates& node, const LayerRange& range,
                                const RangeWeights& weights, const LayerSeconds& layers) {
  if (!exchanges_by_layer(setup)) {
    const StepExchange all = once_a_step(framework, machine, setup, node, weights);
    return std::max(0.0, all.gradients - layers.backward(range)) +
           std::max(0.0, all.weights - layers.forward(range));
  }
  if (exchanges_by_tensor(framework, setup))
    return reduction_seconds(framework, machine, setup, node, weights);
  const auto exchange_of = [&](const LayerRange& part) {
    return by_layer(framework, machine, setup, node, weights_of(model, setup, part));
  };
  const bool gathers_twice = setup.zero == 3;
  const int times = gathers_twice ? 2 : 1;
  const LayerExchange ends = exchange_of({.embedding = range.embedding, .head = range.head});
  // Of a micro-batch whose gradients are scattered, of the backward of one whose are not, and of
  // the gathers besides; exposed.
  double scatters = ends.scatter, summed = 0, gathers = times * ends.gather;
  bool is_first = true;
  for_each_kind(range.blocks, [&](BlockKind kind, int count) {
    const LayerRange one{.blocks = blocks_of_kind(kind, 1)};
    const LayerExchange block = exchange_of(one);
    int hidden = count;
    if (is_first) {
      gathers += times * block.gather;
      scatters += block.scatter;
      --hidden;
    }
    is_first = false;
    const double again = gathers_twice ? block.gather : 0, backward = layers.backward(one);
    gathers += hidden * std::max(0.0, block.gather - layers.forward(one));
    scatters += hidden * std::max(0.0, block.scatter + again - backward);
    summed += hidden * std::max(0.0, again - backward);
  });
  const int scattered = scatters_of_step(framework, setup);
  return scattered * scatters + (setup.micro_batches - scattered) * summed +
         (gathers_twice ? setup.micro_batches : 1) * gathers;
}

double counted_exchange_seconds(const Architecture& model, const FrameworkTraits& framework,
                                const Machine& machine, const ParallelSetup& setup,
                                const NodeRates& node, const LayerRange& range,
                                const RangeWeights& weights, const LayerSeconds& layers) {
  return setup.overlap_gradients ? exposed_exchange_seconds(model, framework, machine, setup, node,
                                                            range, weights, layers)
                                 : reduction_seconds(framework, machine, setup, node, weights);
}

}  // namespace pipewright::planner
