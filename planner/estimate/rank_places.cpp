#include "planner/estimate/rank_places.hpp"

#include <algorithm>

#include "planner/estimate/step_parts.hpp"

namespace pipewright::planner {
namespace {

bool is_data_outermost(const ParallelSetup& setup) {
  return setup.order.of_ranks == RankOrder::DataOutermost;
}

}  // namespace

int devices_of_rank(const ParallelSetup& setup) { return setup.tensor * setup.context; }

int first_device(const ParallelSetup& setup, int rank, int replica) {
  const int place =
      is_data_outermost(setup) ? replica * setup.pipeline + rank : rank * setup.data + replica;
  return place * devices_of_rank(setup);
}

int pipeline_stride(const ParallelSetup& setup) {
  return devices_of_rank(setup) * (is_data_outermost(setup) ? 1 : setup.data);
}

bool share_nodes(const ParallelSetup& setup, int devices_per_node, int from, int to) {
  // Where a replica begins in its node repeats after as many replicas as a node has devices.
  const int replicas = std::min(setup.data, devices_per_node);
  const int lanes = std::min(devices_of_rank(setup), devices_per_node);
  for (int d = 0; d < replicas; ++d) {
    const int here = first_device(setup, from, d), there = first_device(setup, to, d);
    for (int k = 0; k < lanes; ++k) {
      if ((here + k) / devices_per_node != (there + k) / devices_per_node) return false;
    }
  }
  return true;
}

Group replica_group(const ParallelSetup& setup, int devices_per_node) {
  const int members = setup.data * setup.context;
  if (!is_data_outermost(setup) || setup.data == 1) return {members, setup.tensor};
  const int replica = devices_of_rank(setup) * setup.pipeline;
  const int near = replica < devices_per_node
                       ? setup.context * (devices_per_node / replica)
                       : std::min(setup.context, std::max(1, devices_per_node / setup.tensor));
  return {members, setup.tensor * setup.pipeline, 0, std::min(members, near)};
}

Group ends_group(const ParallelSetup& setup, int devices_per_node) {
  const int stride = pipeline_stride(setup);
  if (!is_data_outermost(setup)) {
    const bool one_node = setup.devices() <= devices_per_node;
    return {2, one_node ? 1 : (setup.pipeline - 1) * stride, stride};
  }
  if (share_nodes(setup, devices_per_node, 0, setup.pipeline - 1)) return {2, 1};
  const int replica = stride * setup.pipeline;
  // Apart, even where two strides would fit into one node.
  return {2, std::max((setup.pipeline - 1) * stride, devices_per_node),
          stride * std::max(1, devices_per_node / replica)};
}

OrderChoice order_choice(const Machine& machine, const ParallelSetup& setup) {
  const int per_node = machine.devices_per_node;
  if (setup.pipeline == 1 || setup.data == 1 || setup.devices() <= per_node)
    return OrderChoice::Same;
  if (machine.nodes.size() > 1) return OrderChoice::Differs;
  if (devices_of_rank(setup) % per_node == 0) return OrderChoice::Same;
  ParallelSetup other = setup;
  other.order.of_ranks = RankOrder::DataOutermost;
  const auto rate = [&](const ParallelSetup& one, int from, int to) {
    return hop_between(machine, one, from, to).bytes_per_second;
  };
  ParallelSetup own = setup;
  own.order.of_ranks = RankOrder::PipelineOutermost;
  for (int rank = 0; rank + 1 < setup.pipeline; ++rank) {
    if (rate(other, rank, rank + 1) > rate(own, rank, rank + 1)) return OrderChoice::Differs;
  }
  // Schedules with chunks and the shared table go between the ends too.
  const NodeRates& node = machine.nodes.front();
  const bool ends_gain = rate(other, setup.pipeline - 1, 0) > rate(own, setup.pipeline - 1, 0) ||
                         group_bytes_per_second(node, per_node, ends_group(other, per_node)) >
                             group_bytes_per_second(node, per_node, ends_group(own, per_node));
  return ends_gain ? OrderChoice::Differs : OrderChoice::Worse;
}

}  // namespace pipewright::planner
