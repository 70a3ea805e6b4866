// A placement as a choice for each variable: an operator's way to compute, and how a tensor lies.
#pragma once

#include <memory>

#include "core/spmd/graph/completion.hpp"
#include "planner/tensor_placement/factors.hpp"
#include "planner/tensor_placement/layout_moves.hpp"
#include "planner/tensor_placement/operator_ways.hpp"

namespace pipewright::planner::tensor_placement {

/// Bytes of the optimizer for each element of a parameter: a 32-bit copy and two moments.
inline constexpr std::int64_t kOptimizerBytes = 12;

/// An operator that takes a tensor, in which places of its inputs.
struct Taker {
  std::size_t operator_at = 0;
  std::vector<std::size_t> places = {};
};

/// A layout in which a tensor is taken otherwise than it lies, or with a gradient that has to be
/// brought back, for all operators that take it so.
struct TakenForm {
  spmd::Layout layout, gradient;  // as it is taken; as its gradient comes
  std::vector<std::size_t> operators = {};
  double forward_ns = 0, backward_ns = 0;
  std::int64_t bytes = 0;  // that are kept of it beside the tensor
};

class PlacementProblem {
 public:
  /// Keeps a reference to both. Throws InputError: annotations that contradict each other, a graph
  /// on several meshes, a mesh of more than three dimensions.
  PlacementProblem(const spmd::OperatorGraph& graph, const MeshPrices& prices);

  /// Variables: operators, then tensors, in the order of the graph. What they take together;
  /// where a tensor is taken by too many operators for a table, a lower bound of it.
  const FactorGraph& factors() const { return factors_; }
  bool is_exact() const { return is_exact_; }
  /// Without bounds in place of tables.
  Totals totals(const Assignment& assignment) const;
  /// As the completed graph has it: where the search may start.
  const Assignment& of_completion() const { return of_completion_; }

  std::size_t variable_of_tensor(std::size_t tensor) const { return ways_.size() + tensor; }
  const OperatorWay& way(std::size_t at, const Assignment& assignment) const {
    return ways_[at][assignment[at]];
  }
  const std::vector<std::vector<OperatorWay>>& ways() const { return ways_; }
  const std::vector<spmd::Layout>& homes(std::size_t tensor) const { return homes_[tensor]; }
  const spmd::Layout& home(std::size_t tensor, const Assignment& assignment) const {
    return homes_[tensor][assignment[variable_of_tensor(tensor)]];
  }
  const LayoutMoves& moves(std::size_t tensor) const { return *moves_[tensor]; }
  bool has_gradient(std::size_t tensor) const { return gradients_[tensor]; }
  const std::vector<Taker>& takers(std::size_t tensor) const { return takers_[tensor]; }

  /// What a tensor keeps where it lies, with gradient and optimizer if it is a parameter.
  std::int64_t home_bytes(std::size_t tensor, const spmd::Layout& home) const;
  /// From how it is made to how it lies, and its gradient back.
  Totals made(std::size_t tensor, const spmd::Layout& home, const spmd::Layout& as_made) const;
  std::vector<TakenForm> forms(std::size_t tensor, const Assignment& assignment) const;

 private:
  void find_moves();
  void find_choices(const spmd::OperatorGraph& completed);
  void find_factors();
  void add_taken_factor(std::size_t tensor);
  std::vector<std::size_t> homes_by_number(std::size_t tensor) const;

  const spmd::OperatorGraph& graph_;
  const MeshPrices& prices_;
  std::vector<bool> gradients_;                            // by tensor
  std::vector<std::shared_ptr<const LayoutMoves>> moves_;  // by tensor
  std::vector<std::vector<OperatorWay>> ways_;             // by operator
  std::vector<std::vector<spmd::Layout>> homes_;           // by tensor
  std::vector<std::vector<Taker>> takers_;                 // by tensor
  Assignment of_completion_;
  FactorGraph factors_;
  bool is_exact_ = true;
};

/// A gradient lies as its tensor does, with nothing left to be summed.
spmd::Layout without_partial(spmd::Layout layout);

}  // namespace pipewright::planner::tensor_placement
