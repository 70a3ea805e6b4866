#include "core/costs/table_key.hpp"

#include "core/costs/action_times.hpp"
#include "core/costs/collective_model.hpp"

// Every member is named, so that a new one does not compile before it is added here. Not in a
// namespace without a name: there no type is looked up from.

namespace pipewright {

static void add_to(ContentKey& key, const RouteCosts& route) {
  const auto& [latency, bytes_per_second, links] = route;
  key.add_all(latency, bytes_per_second, links);
}

static void add_to(ContentKey& key, const Link& link) {
  const auto& [name, bytes_per_second, sharing] = link;
  key.add_all(name, bytes_per_second, sharing);
}

static void add_to(ContentKey& key, const ActionTime& row) {
  const auto& [replica, rank, action, time, line] = row;
  key.add_all(replica, rank, to_string(action), time);
}

static void add_to(ContentKey& key, const ActionTimes& times) {
  const auto& [replicas, ranks, micro_batches] = times.shape();
  key.add_all(replicas, ranks, micro_batches, times.rows());
}

static void add_to(ContentKey& key, const CollectivePrices& prices) {
  const auto& [model, device_of_rank, devices_per_node] = prices;
  const auto& [launch_ns, step_ns, part_ns_per_byte, bulk_ns, bytes_per_second, across_step_ns,
               across_bytes_per_second, source] = model;
  key.add_all(device_of_rank, devices_per_node, launch_ns, step_ns, part_ns_per_byte, bulk_ns,
              bytes_per_second, across_step_ns, across_bytes_per_second);
}

void add_to(ContentKey& key, const StageCosts& costs) {
  const auto& [f, i, w, b, opt, reduce, unshard] = costs;
  key.add_all(f, i, w, b, opt, reduce, unshard);
}

static void add_to(ContentKey& key, const StageMemory& memory) {
  const auto& [f, i, w, constant, in_f, in_i, in_w, in_b, version, whole_gradients, whole_weights,
               copied_gradients, copied_weights] = memory;
  key.add_all(f, i, w, constant, in_f, in_i, in_w, in_b, version, whole_gradients, whole_weights,
              copied_gradients, copied_weights);
}

void add_to(ContentKey& key, const CostTable& table) {
  const auto& [stages, actions, memory, activation_bytes, gradient_bytes, parameter_bytes,
               tied_bytes, overlapped_pair, pairs, every_route, route_of_edge, ranks_of_replica,
               ranks_of_entry, links, collectives, source] = table;
  key.add_all(stages, actions, memory, activation_bytes, gradient_bytes, parameter_bytes,
              tied_bytes, overlapped_pair, pairs, every_route, route_of_edge, ranks_of_replica,
              ranks_of_entry, links, collectives);
}

}  // namespace pipewright
