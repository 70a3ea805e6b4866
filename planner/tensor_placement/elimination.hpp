// The least value of a sum of tables, by eliminating one variable after the other (bucket
// elimination: Dechter 1999, doi:10.1016/S0004-3702(99)00059-4). Where a table would grow too
// large, the sum over a variable is split, and what comes out is a bound (mini-buckets: Dechter and
// Rish 2003, doi:10.1145/636865.636866).
#pragma once

#include "planner/tensor_placement/factors.hpp"

namespace pipewright::planner::tensor_placement {

struct Table {
  std::vector<std::size_t> variables;
  std::vector<double> values;  // row major
};

/// How much a nanosecond and a byte count.
struct Weights {
  double ns = 1, bytes = 0;
};

/// A table of more entries is not made.
inline constexpr std::size_t kMostEntries = std::size_t{1} << 21;

/// Each variable after the others that touch it least; `last`, if any, at the end.
std::vector<std::size_t> elimination_order(const FactorGraph& graph,
                                           std::size_t last = static_cast<std::size_t>(-1));

class Elimination {
 public:
  Elimination(const FactorGraph& graph, std::vector<std::size_t> order, Weights weights);

  /// No assignment has less; one has as much, if it is exact.
  double bound() const { return bound_; }
  bool is_exact() const { return is_exact_; }
  /// One that has the bound where it is exact, and a good one otherwise.
  Assignment assignment() const;
  /// By value of the last variable: what no assignment with that value has less than.
  std::vector<double> bounds_of_last() const;

  /// The variables in the order in which a search gives them values: backwards.
  std::size_t variable_at(std::size_t depth) const { return order_[order_.size() - 1 - depth]; }
  /// What the bound of an assignment of the variables before `depth` grows by when the one at
  /// `depth` gets each of its values; `assignment` has those before, and what it has of this one
  /// does not count.
  std::vector<double> growth(std::size_t depth, Assignment& assignment) const;

 private:
  void eliminate(std::size_t position);
  Table minimum(const std::vector<std::size_t>& tables, std::size_t variable) const;
  std::size_t bucket_of(const Table& table) const;
  void put(Table table);

  std::vector<std::size_t> sizes_, order_, position_;
  std::vector<Table> tables_;
  std::vector<std::vector<std::size_t>> buckets_;   // tables, by position of their first variable
  std::vector<std::vector<std::size_t>> messages_;  // tables that came of a bucket
  std::vector<double> constants_;                   // what came of it without variables
  double bound_ = 0;
  bool is_exact_ = true;
};

}  // namespace pipewright::planner::tensor_placement
