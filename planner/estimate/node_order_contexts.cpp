#include "planner/estimate/node_order_contexts.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "planner/estimate/step_parts.hpp"

namespace pipewright::planner {
NodeOrderContexts::NodeOrderContexts(const Job& job, const Architecture& model,
                                     const CostScales& scales)
    : orders_(node_orders(job.cluster)) {
  for (const std::string& text : job.strategy.node_order)
    asked_.push_back(read_node_order(job.cluster, text));
  if (asked_.empty()) asked_ = orders_;
  const FrameworkTraits framework =
      scaled(with_products(with_gradients(job.strategy.framework, job.strategy.grad_accum_dtype),
                           job.strategy.matmul_dtype),
             scales);
  const Machine machine = scaled(machine_of(job.cluster), scales);
  require_products(machine, framework);
  for (const NodeOrder& order : orders_)
    contexts_.push_back({model, framework, in_order(machine, nodes_in_order(job.cluster, order)),
                         std::make_shared<KnownLayers>()});
}

const EstimateContext& NodeOrderContexts::of(const NodeOrder& order) const {
  const auto place = std::find(orders_.begin(), orders_.end(), order);
  PIPEWRIGHT_ASSERT(place != orders_.end(), "a setup has an order that its cluster does not have");
  return contexts_[static_cast<std::size_t>(place - orders_.begin())];
}

void OrdersOfSetups::visit(ParallelSetup setup, const SpaceVisitor& visitor) {
  if (contexts_.asked().size() == 1) {
    setup.order.of_nodes = contexts_.asked().front();
    visitor.visit(setup);
    return;
  }
  const std::vector<bool>& is_new = differ(setup);
  for (std::size_t k = 0; k < is_new.size(); ++k) {
    if (!is_new[k]) {
      visitor.ruled_out(LeftOut::SameNodes, setup);
      continue;
    }
    setup.order.of_nodes = contexts_.asked()[k];
    visitor.visit(setup);
  }
}

const std::vector<bool>& OrdersOfSetups::differ(const ParallelSetup& setup) {
  const auto [entry, is_new] = differ_.try_emplace(
      std::tuple(setup.pipeline, setup.tensor * setup.context, setup.data, setup.order.of_ranks));
  if (!is_new) return entry->second;
  std::vector<RankNodes> seen;
  for (const NodeOrder& order : contexts_.asked()) {
    const RankNodes ranks = nodes_of_ranks(contexts_.of(order).machine, setup);
    const bool is_known = std::any_of(seen.begin(), seen.end(),
                                      [&](const RankNodes& other) { return alike(other, ranks); });
    entry->second.push_back(!is_known);
    seen.push_back(ranks);
  }
  return entry->second;
}

}  // namespace pipewright::planner
