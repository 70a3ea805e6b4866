// Every ideal of a partial order (a set that holds, with an element, all that come before it), and
// which ideals one more element leads to. A pipeline of contiguous stages is a chain of ideals, a
// stage the difference of two (Tarnawski et al., NeurIPS 2020, section 4). Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/graph_partition/elements.hpp"

namespace pipewright::planner {

struct IdealStep {
  int element = 0;
  int ideal = 0;  // the ideal with that element more
};

/// Ideal 0 is the empty one, the last is the whole set; ideals with fewer elements come first.
struct IdealLattice {
  int words = 0;                        // 64-bit words of one ideal
  std::vector<std::uint64_t> bits;      // `words` for each ideal
  std::vector<std::size_t> first_step;  // ideal i: steps [first_step[i], first_step[i + 1])
  std::vector<IdealStep> steps;

  int count() const { return static_cast<int>(first_step.size()) - 1; }
  bool holds(int ideal, int element) const {
    const std::size_t word = static_cast<std::size_t>(ideal) * static_cast<std::size_t>(words) +
                             static_cast<std::size_t>(element / 64);
    return ((bits[word] >> (element % 64)) & 1U) != 0;
  }
};

/// nullopt where there are more than `most` ideals: the graph is too wide for the method.
std::optional<IdealLattice> ideals_of(const ElementOrder& order, int most);

}  // namespace pipewright::planner
