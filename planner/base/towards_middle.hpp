// An order of things of different size.
#pragma once

#include <cstddef>
#include <vector>

namespace pipewright::planner {

/// The first at both ends, where a pipeline fills and drains, the last in the middle.
inline std::vector<int> towards_the_middle(const std::vector<int>& sorted) {
  std::vector<int> result(sorted.size());
  std::size_t front = 0, back = sorted.size();
  for (std::size_t k = 0; k < sorted.size(); ++k) result[k % 2 == 0 ? front++ : --back] = sorted[k];
  return result;
}

}  // namespace pipewright::planner
