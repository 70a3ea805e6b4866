#include "tests/reference/random_sharding.hpp"

#include <map>
#include <string>
#include <vector>

namespace pipewright::reference {
namespace {

/// Places behind which a computation of the stage stands, by rank.
std::vector<std::size_t> places_of(const Row& row, int stage) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < row.size(); ++i) {
    for (const Action& a : row[i]) {
      if (is_pass(a) && a.stage == stage) places.push_back(i + 1);
    }
  }
  return places;
}

void insert(Row& row, std::size_t at, int stage, const char* kind) {
  row.insert(row.begin() + static_cast<std::ptrdiff_t>(at), Cell{{stage, kind, -1, -1}});
}

}  // namespace

void add_sharding(Dice& dice, Order& order, Heading& heading) {
  heading.zero = dice.between(1, 3);
  if (dice.chance(30)) heading.replica_groups = dice.between(2, 3);
  std::map<int, std::vector<std::size_t>> ranks_of;  // by stage
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    std::map<int, bool> computed;
    for (const Cell& cell : order[rank]) {
      for (const Action& a : cell) {
        if (is_pass(a)) computed[a.stage] = true;
      }
    }
    for (const auto& [stage, yes] : computed) ranks_of[stage].push_back(rank);
  }
  for (const auto& [stage, ranks] : ranks_of) {
    const int reductions = dice.below(3), gatherings = dice.below(3);
    const std::size_t turn = static_cast<std::size_t>(dice.below(4));
    for (const std::size_t rank : ranks) {
      Row& row = order[rank];
      for (int i = 0; i < reductions; ++i) {
        const auto places = places_of(row, stage);
        insert(row, places[(turn + static_cast<std::size_t>(i)) % places.size()], stage,
               "REDUCE_GRAD");
      }
      for (int i = 0; i < gatherings; ++i) {
        const auto places = places_of(row, stage);
        const std::size_t at = places[(turn + static_cast<std::size_t>(i)) % places.size()];
        insert(row, at, stage, "UNSHARD");
        insert(row, at, stage, "RESHARD");
      }
      if (reductions > 0 && dice.chance(80)) row.push_back({{stage, "REDUCE_GRAD", -1, -1}});
    }
  }
}

}  // namespace pipewright::reference
