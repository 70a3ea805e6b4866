#include "tests/reference/random_parts.hpp"

#include <set>
#include <string>
#include <vector>

namespace pipewright::reference {
namespace {

Action random_call(Dice& dice, bool across_ranks) {
  static const char* const kinds[] = {"ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER",
                                      "ALL_TO_ALL", "BROADCAST",  "RING_SEND"};
  Dice extra = dice;
  const std::string axis = dice.chance(50) ? "tp" : "ep";
  const int kind = dice.below(5);
  Action call{-1, kinds[extra.chance(15) ? 5 : kind], -1, -1,
              across_ranks && dice.chance(20) ? "all" : axis};
  if (dice.chance(60)) call.data = std::to_string(dice.below(3));
  if (dice.chance(40)) {
    call.shape = dice.chance(50) ? "4x8" : "16";
    call.dtype = "float32";
  }
  call.weight = extra.chance(25) ? extra.between(1, 5) : 0;
  if (call.group == axis && extra.chance(20)) call.group = "tp+ep";
  call.beside = extra.chance(30);
  if (dice.chance(20)) call.stream = std::to_string(dice.between(1, 2));
  return call;
}

std::vector<Action> random_list(Dice& dice, bool across_ranks) {
  static const char* const names[] = {"a", "mlp", "x1"};
  std::vector<Action> list;
  std::int64_t weights = 0;
  const int parts = dice.between(1, 5), computation = dice.below(parts);
  for (int k = 0; k < parts; ++k) {
    if (k != computation && dice.chance(55)) {
      list.push_back(random_call(dice, across_ranks));
      continue;
    }
    list.push_back({-1, "PART", -1, -1, "", names[dice.below(3)] + std::to_string(k)});
    list.back().before = weights;
    list.back().weight = dice.between(1, 5);
    weights += list.back().weight;
  }
  for (Action& part : list) part.of_all = weights;
  return list;
}

}  // namespace

void add_parts(Dice& dice, const Order& order, Heading& heading) {
  heading.mesh.emplace_back("tp", dice.between(1, 4));
  heading.mesh.emplace_back("ep", dice.between(1, 3));
  const bool across_ranks = dice.chance(25);
  std::set<std::string> known;
  for (const Row& row : order) {
    for (const Cell& cell : row) {
      for (const Action& a : cell) {
        const std::string of = std::to_string(a.stage) + a.kind;
        if (!is_pass(a) || !known.insert(of).second || !dice.chance(60)) continue;
        heading.parts[of] = random_list(dice, across_ranks);
      }
    }
  }
}

}  // namespace pipewright::reference
