// All layouts that a tensor can have on a mesh, and the cheapest collectives from each to each.
#pragma once

#include "planner/tensor_placement/mesh_prices.hpp"

namespace pipewright::planner::tensor_placement {

class LayoutMoves {
 public:
  /// Partial values are sums here; what another reduction takes is the same.
  LayoutMoves(const spmd::Shape& shape, std::int64_t element_bytes, const MeshPrices& prices);
  LayoutMoves(const LayoutMoves&) = delete;
  LayoutMoves& operator=(const LayoutMoves&) = delete;

  /// By which the layout is known below.
  std::size_t number(const spmd::Layout& layout) const;
  /// Of the same layout with these mesh dimensions (as bits) partial, which are not divided.
  std::size_t with_partial(std::size_t layout, unsigned dims) const;
  std::size_t without_partial(std::size_t layout) const { return whole_[layout]; }
  double ns(std::size_t from, std::size_t to) const { return ns_[from * layouts_.size() + to]; }
  /// What the first process holds, which holds the most.
  std::int64_t bytes(std::size_t layout) const { return bytes_[layout]; }
  /// The collectives that take so long; its cost is left open.
  spmd::ReshardPlan plan(const spmd::Layout& from, const spmd::Layout& to) const;

 private:
  struct Edge {
    std::size_t to = 0;
    double ns = 0;
    spmd::ReshardStep step;
  };

  std::size_t enter(const spmd::Layout& layout);
  void cheapest_from(std::size_t source);

  std::vector<spmd::Layout> layouts_;
  std::map<std::pair<std::vector<std::vector<int>>, std::vector<int>>, std::size_t> numbers_;
  std::vector<std::vector<Edge>> edges_;     // by layout
  std::vector<double> ns_;                   // by pair
  std::vector<const Edge*> last_;            // by pair: the last of the cheapest steps
  std::vector<std::size_t> before_, whole_;  // by pair: the layout before it; by layout
  std::vector<std::int64_t> bytes_;
};

}  // namespace pipewright::planner::tensor_placement
