// Sums of tables over few variables each, and their least value: the form in which a placement is
// searched.
#pragma once

#include <cstddef>
#include <vector>

namespace pipewright::planner::tensor_placement {

/// What one part of a placement takes, by the values of some variables: row major, the last
/// variable's value running fastest.
struct Factor {
  std::vector<std::size_t> variables;
  std::vector<double> ns, bytes;
};

struct FactorGraph {
  std::vector<std::size_t> sizes;  // values of each variable
  std::vector<Factor> factors;
};

/// A value of every variable.
using Assignment = std::vector<std::size_t>;

struct Totals {
  double ns = 0, bytes = 0;
};

/// The place of an assignment in a factor.
std::size_t place_in(const Factor& factor, const std::vector<std::size_t>& sizes,
                     const Assignment& assignment);
Totals totals_of(const FactorGraph& graph, const Assignment& assignment);

/// Calls `act(values)` for each combination of values of variables with so many, in row-major
/// order.
template <class Act>
void for_each_combination(const std::vector<std::size_t>& sizes, Act act) {
  std::vector<std::size_t> values(sizes.size());
  while (true) {
    act(values);
    std::size_t at = values.size();
    while (at > 0 && ++values[at - 1] == sizes[at - 1]) values[--at] = 0;
    if (at == 0) return;
  }
}

/// The values of each variable that are left when those are taken away that another one of the same
/// variable replaces at no more time and no more bytes, whatever the other variables are (dead-end
/// elimination: Goldstein 1994, doi:10.1016/S0006-3495(94)80923-3). With `time_alone` bytes do not
/// count.
std::vector<std::vector<std::size_t>> undominated_values(const FactorGraph& graph, bool time_alone);

/// The same graph with these values alone.
FactorGraph restricted(const FactorGraph& graph,
                       const std::vector<std::vector<std::size_t>>& values);

}  // namespace pipewright::planner::tensor_placement
