#include "planner/tensor_placement/layout_moves.hpp"

#include <algorithm>
#include <limits>
#include <queue>

#include "core/base/error.hpp"
#include "core/spmd/reshard_steps.hpp"

namespace pipewright::planner::tensor_placement {
namespace {

std::vector<int> partial_dims(const spmd::Layout& layout) {
  std::vector<int> dims;
  for (const auto& [dim, reduction] : layout.partial) dims.push_back(dim);
  return dims;
}

/// Where all values are partial: so that steps may make any of them so.
spmd::Layout all_partial(const spmd::ProcessMesh& mesh) {
  spmd::Layout layout;
  for (int dim = 0; dim < mesh.dims(); ++dim) layout.partial[dim] = spmd::Reduction::Sum;
  return layout;
}

}  // namespace

LayoutMoves::LayoutMoves(const spmd::Shape& shape, std::int64_t element_bytes,
                         const MeshPrices& prices) {
  const spmd::ReshardPrices of_elements{.element_bytes = element_bytes};
  const spmd::Layout target = all_partial(prices.mesh());
  enter(spmd::Layout::replicated(shape.size()));
  for (std::size_t at = 0; at < layouts_.size(); ++at) {
    const spmd::Layout from = layouts_[at];
    auto steps = steps_from(shape, {prices.mesh(), from}, target, of_elements);
    for (auto& step : joint_steps_from(shape, {prices.mesh(), from}, of_elements)) {
      steps.push_back(std::move(step));
    }
    std::vector<Edge> edges;
    for (spmd::ReshardStep& step : steps) {
      const double ns = prices.of(step, shape, from, element_bytes);
      const std::size_t to = enter(step.after.layout);
      edges.push_back({to, ns, std::move(step)});
    }
    edges_.push_back(std::move(edges));
    const auto part = spmd::local_part({shape, from}, prices.mesh(), 0);
    bytes_.push_back(element_bytes * spmd::elements_of(part));
  }
  const std::size_t pairs = layouts_.size() * layouts_.size();
  ns_.assign(pairs, std::numeric_limits<double>::infinity());
  last_.assign(pairs, nullptr);
  before_.assign(pairs, 0);
  for (std::size_t source = 0; source < layouts_.size(); ++source) {
    cheapest_from(source);
    spmd::Layout whole = layouts_[source];
    whole.partial.clear();
    whole_.push_back(number(whole));
  }
}

std::size_t LayoutMoves::enter(const spmd::Layout& layout) {
  const auto [known, fresh] =
      numbers_.try_emplace({layout.dims, partial_dims(layout)}, layouts_.size());
  if (fresh) layouts_.push_back(layout);
  return known->second;
}

std::size_t LayoutMoves::number(const spmd::Layout& layout) const {
  const auto known = numbers_.find({layout.dims, partial_dims(layout)});
  PIPEWRIGHT_ASSERT(known != numbers_.end(), "a layout that no steps lead to");
  return known->second;
}

std::size_t LayoutMoves::with_partial(std::size_t layout, unsigned dims) const {
  spmd::Layout partial = layouts_[layout];
  for (int dim = 0; dims >> dim != 0; ++dim) {
    if ((dims >> dim & 1U) != 0) partial.partial[dim] = spmd::Reduction::Sum;
  }
  return number(partial);
}

void LayoutMoves::cheapest_from(std::size_t source) {
  using Entry = std::pair<double, std::size_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  const std::size_t row = source * layouts_.size();
  ns_[row + source] = 0;
  queue.push({0, source});
  while (!queue.empty()) {
    const auto [ns, at] = queue.top();
    queue.pop();
    if (ns > ns_[row + at]) continue;
    for (const Edge& edge : edges_[at]) {
      if (ns + edge.ns >= ns_[row + edge.to]) continue;
      ns_[row + edge.to] = ns + edge.ns;
      last_[row + edge.to] = &edge;
      before_[row + edge.to] = at;
      queue.push({ns + edge.ns, edge.to});
    }
  }
}

spmd::ReshardPlan LayoutMoves::plan(const spmd::Layout& from, const spmd::Layout& to) const {
  spmd::ReshardPlan plan{.steps = {}, .bytes = 0, .cost = 0};
  const std::size_t source = number(from), row = source * layouts_.size();
  for (std::size_t at = number(to); at != source; at = before_[row + at]) {
    plan.steps.push_back(last_[row + at]->step);
    // Partial values as the tensor's are, not as sums.
    for (auto& [dim, reduction] : plan.steps.back().after.layout.partial) {
      for (const spmd::Layout& end : {from, to}) {
        if (const auto own = end.partial.find(dim); own != end.partial.end()) {
          reduction = own->second;
        }
      }
    }
    plan.bytes += plan.steps.back().bytes;
  }
  std::reverse(plan.steps.begin(), plan.steps.end());
  return plan;
}

}  // namespace pipewright::planner::tensor_placement
