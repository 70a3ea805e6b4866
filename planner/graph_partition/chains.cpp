#include "planner/graph_partition/chains.hpp"

#include <random>

#include "planner/base/index.hpp"

namespace pipewright::planner {
namespace {}  // namespace

std::vector<int> topological_order(const ElementOrder& order, int number) {
  std::mt19937_64 random(static_cast<std::uint64_t>(number));
  std::vector<std::size_t> missing;
  std::vector<int> possible, sequence;
  for (const Element& element : order.elements) {
    missing.push_back(element.before.size());
    if (element.before.empty()) possible.push_back(static_cast<int>(missing.size()) - 1);
  }
  while (!possible.empty()) {
    std::size_t place = 0;
    if (number == 0) place = possible.size() - 1;
    if (number > 1) place = random() % possible.size();
    const int element = possible[place];
    possible.erase(possible.begin() + static_cast<std::ptrdiff_t>(place));
    sequence.push_back(element);
    for (const int after : order.elements[at(element)].after) {
      if (--missing[at(after)] == 0) possible.push_back(after);
    }
  }
  return sequence;
}

IdealLattice chain_of(const std::vector<int>& sequence) {
  const int count = static_cast<int>(sequence.size());
  IdealLattice lattice;
  lattice.words = (count + 63) / 64;
  const std::size_t words = at(lattice.words);
  lattice.bits.assign(words * at(count + 1), 0);
  for (int ideal = 0; ideal <= count; ++ideal) {
    lattice.first_step.push_back(lattice.steps.size());
    if (ideal == count) break;
    const int element = sequence[at(ideal)];
    lattice.steps.push_back({element, ideal + 1});
    for (std::size_t word = 0; word < words; ++word) {
      lattice.bits[at(ideal + 1) * words + word] = lattice.bits[at(ideal) * words + word];
    }
    lattice.bits[at(ideal + 1) * words + at(element / 64)] |= std::uint64_t{1} << (element % 64);
  }
  lattice.first_step.push_back(lattice.steps.size());
  return lattice;
}

}  // namespace pipewright::planner
