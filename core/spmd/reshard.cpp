#include "core/spmd/reshard.hpp"

#include <algorithm>
#include <map>
#include <queue>
#include <set>

#include "core/base/error.hpp"
#include "core/spmd/reshard_steps.hpp"

namespace pipewright::spmd {
namespace {

/// A layout on the first mesh or on the second.
struct Node {
  bool arrived = false;
  Layout layout;

  bool operator<(const Node& other) const {
    return std::tie(arrived, layout.dims, layout.partial) <
           std::tie(other.arrived, other.layout.dims, other.layout.partial);
  }
};

struct Reached {
  std::int64_t cost = 0;
  ReshardStep step;  // the last one
  const Node* before = nullptr;
};

std::int64_t messages_of_busiest(const ReshardStep& step) {
  std::map<int, std::int64_t> sent, received;
  std::int64_t most = 0;
  for (const PartTransfer& transfer : step.transfers) {
    most = std::max({most, ++sent[transfer.from], ++received[transfer.to]});
  }
  return most;
}

std::int64_t cost_of(const ReshardStep& step, const ReshardPrices& prices) {
  switch (step.kind) {
    case ReshardStep::Kind::Slice:
    case ReshardStep::Kind::MakePartial:
      return 0;
    case ReshardStep::Kind::Exchange:
      return step.bytes + prices.launch_bytes * messages_of_busiest(step);
    default:
      return step.bytes + prices.launch_bytes;
  }
}

class Search {
 public:
  Search(const Shape& shape, const Distribution& from, const Distribution& to,
         const ReshardPrices& prices)
      : shape_(shape), from_(from), to_(to), prices_(prices), one_mesh_(from.mesh == to.mesh) {}

  ReshardPlan cheapest() {
    const Node goal{true, to_.layout};
    reach({one_mesh_, from_.layout}, 0, {}, nullptr);
    while (!queue_.empty()) {
      const auto [cost, count, node] = queue_.top();
      queue_.pop();
      if (!done_.insert(node).second) continue;
      if (!(*node < goal) && !(goal < *node)) return plan_to(*node);
      for (ReshardStep& step : next(*node)) {
        const bool arrived = node->arrived || step.after.mesh == to_.mesh;
        Node after{arrived, step.after.layout};
        const std::int64_t more = cost_of(step, prices_);
        reach(std::move(after), cost + more, std::move(step), node);
      }
    }
    throw_bug(__FILE__, __LINE__, "a layout that no steps lead to");
  }

 private:
  /// The target's layout with this partial state: what its other mesh dimensions divide.
  Layout aim(const std::map<int, Reduction>& partial) const {
    Layout layout{.dims = to_.layout.dims, .partial = partial};
    for (std::vector<int>& dims : layout.dims) {
      dims.erase(std::remove_if(dims.begin(), dims.end(),
                                [&](int dim) { return partial.count(dim) != 0; }),
                 dims.end());
    }
    return layout;
  }

  std::vector<ReshardStep> next(const Node& node) const {
    const Distribution here{node.arrived ? to_.mesh : from_.mesh, node.layout};
    const bool alike = from_.mesh.shape == to_.mesh.shape;
    std::vector<ReshardStep> steps;
    if (node.arrived || alike) {
      steps = steps_from(shape_, here, to_.layout, prices_);
    } else {
      steps = steps_from(shape_, here, {.dims = {}, .partial = {}}, prices_);
    }
    const bool whole = node.layout.partial.empty();
    if (node.arrived || alike || whole) {
      const Layout there = aim(node.layout.partial);
      steps.push_back(exchange(shape_, here, {to_.mesh, there}, prices_));
    }
    if (!node.arrived && alike) {
      steps.push_back(exchange(shape_, here, {to_.mesh, node.layout}, prices_));
    }
    return steps;
  }

  void reach(Node node, std::int64_t cost, ReshardStep step, const Node* before) {
    const auto [found, fresh] = reached_.try_emplace(std::move(node));
    if (!fresh && found->second.cost <= cost) return;
    found->second = {cost, std::move(step), before};
    queue_.push({cost, counter_++, &found->first});
  }

  ReshardPlan plan_to(const Node& goal) const {
    ReshardPlan plan{.steps = {}, .bytes = 0, .cost = reached_.at(goal).cost};
    for (const Node* node = &goal; reached_.at(*node).before != nullptr;
         node = reached_.at(*node).before) {
      plan.steps.push_back(reached_.at(*node).step);
      plan.bytes += plan.steps.back().bytes;
    }
    std::reverse(plan.steps.begin(), plan.steps.end());
    return plan;
  }

  using Entry = std::tuple<std::int64_t, std::int64_t, const Node*>;

  const Shape& shape_;
  const Distribution &from_, &to_;
  const ReshardPrices& prices_;
  bool one_mesh_;
  std::map<Node, Reached> reached_;
  std::set<const Node*> done_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
  std::int64_t counter_ = 0;  // of entries at the same cost, the oldest first
};

}  // namespace

std::vector<int> dims_of(const ReshardStep& step) {
  if (step.kind == ReshardStep::Kind::Exchange) return {};
  std::vector<int> dims = {step.mesh_dim};
  dims.insert(dims.end(), step.more_dims.begin(), step.more_dims.end());
  return dims;
}

std::string_view name_of(ReshardStep::Kind kind) {
  constexpr std::string_view kNames[] = {"slice",      "make_partial",   "all_gather",
                                         "all_reduce", "reduce_scatter", "all_to_all",
                                         "exchange"};
  return kNames[static_cast<std::size_t>(kind)];
}

ReshardPlan cheapest_reshard(const Shape& shape, const Distribution& from, const Distribution& to,
                             const ReshardPrices& prices) {
  require_mesh(from.mesh);
  require_mesh(to.mesh);
  require_layout({shape, from.layout}, from.mesh, "in");
  require_layout({shape, to.layout}, to.mesh, "out");
  return Search(shape, from, to, prices).cheapest();
}

}  // namespace pipewright::spmd
