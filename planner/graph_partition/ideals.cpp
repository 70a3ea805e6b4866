#include "planner/graph_partition/ideals.hpp"

#include <algorithm>
#include <random>

#include "planner/base/index.hpp"

namespace pipewright::planner {
namespace {

/// Finds an ideal by its members: open addressing over the numbers of the ideals.
struct Directory {
  std::vector<int> slots = std::vector<int>(1024, -1);
  std::vector<std::uint64_t> keys;  // of each ideal: exclusive or of its elements' keys
};

void widen(Directory& directory) {
  std::vector<int> slots(directory.slots.size() * 2, -1);
  const std::size_t mask = slots.size() - 1;
  for (std::size_t ideal = 0; ideal < directory.keys.size(); ++ideal) {
    std::size_t slot = directory.keys[ideal] & mask;
    while (slots[slot] >= 0) slot = (slot + 1) & mask;
    slots[slot] = static_cast<int>(ideal);
  }
  directory.slots.swap(slots);
}

/// Is `ideal` the set `parent` with `element` more?
bool is_child(const IdealLattice& lattice, int ideal, int parent, int element) {
  const std::uint64_t* mine = &lattice.bits[at(ideal) * at(lattice.words)];
  const std::uint64_t* theirs = &lattice.bits[at(parent) * at(lattice.words)];
  for (int word = 0; word < lattice.words; ++word) {
    const std::uint64_t more = word == element / 64 ? std::uint64_t{1} << (element % 64) : 0;
    if (mine[word] != (theirs[word] | more)) return false;
  }
  return true;
}

/// The number of that child; a new one where it was not met before.
int child_of(IdealLattice& lattice, Directory& directory, int parent, int element,
             std::uint64_t key) {
  if (directory.keys.size() * 2 > directory.slots.size()) widen(directory);
  const std::size_t mask = directory.slots.size() - 1;
  std::size_t slot = key & mask;
  for (; directory.slots[slot] >= 0; slot = (slot + 1) & mask) {
    const int found = directory.slots[slot];
    if (directory.keys[at(found)] == key && is_child(lattice, found, parent, element)) return found;
  }
  const int fresh = static_cast<int>(directory.keys.size());
  directory.slots[slot] = fresh;
  directory.keys.push_back(key);
  const std::size_t from = at(parent) * at(lattice.words), to = lattice.bits.size();
  lattice.bits.resize(to + at(lattice.words));
  for (std::size_t word = 0; word < at(lattice.words); ++word) {
    lattice.bits[to + word] = lattice.bits[from + word];
  }
  lattice.bits[to + at(element / 64)] |= std::uint64_t{1} << (element % 64);
  return fresh;
}

bool ready(const IdealLattice& lattice, int ideal, const Element& element) {
  return std::all_of(element.before.begin(), element.before.end(),
                     [&](int before) { return lattice.holds(ideal, before); });
}

}  // namespace

std::optional<IdealLattice> ideals_of(const ElementOrder& order, int most) {
  const int count = static_cast<int>(order.elements.size());
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> key_of(at(count));
  for (std::uint64_t& key : key_of) key = random();
  IdealLattice lattice;
  lattice.words = (count + 63) / 64;
  lattice.bits.assign(at(lattice.words), 0);
  Directory directory;
  directory.keys.push_back(0);
  directory.slots[0] = 0;
  // What each ideal that waits for its turn could be given next.
  std::vector<std::vector<int>> next(1);
  for (int element = 0; element < count; ++element) {
    if (order.elements[at(element)].before.empty()) next[0].push_back(element);
  }
  for (int ideal = 0; ideal < static_cast<int>(directory.keys.size()); ++ideal) {
    lattice.first_step.push_back(lattice.steps.size());
    const std::vector<int> candidates = std::move(next[at(ideal)]);
    for (const int element : candidates) {
      const int child = child_of(lattice, directory, ideal, element,
                                 directory.keys[at(ideal)] ^ key_of[at(element)]);
      lattice.steps.push_back({element, child});
      if (child < static_cast<int>(next.size())) continue;
      if (child >= most) return std::nullopt;
      std::vector<int>& follow = next.emplace_back();
      for (const int other : candidates) {
        if (other != element) follow.push_back(other);
      }
      for (const int after : order.elements[at(element)].after) {
        if (ready(lattice, child, order.elements[at(after)])) follow.push_back(after);
      }
    }
  }
  lattice.first_step.push_back(lattice.steps.size());
  return lattice;
}

}  // namespace pipewright::planner
