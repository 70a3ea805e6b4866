#include "tests/reference/parts.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace pipewright::reference {
namespace {

const std::vector<Action>* list_of(const Action& action, const Parts& parts) {
  if (!is_pass(action)) return nullptr;
  const auto found = parts.find(std::to_string(action.stage) + action.kind);
  return found == parts.end() ? nullptr : &found->second;
}

/// Of an action without a list one computation.
std::vector<Action> parts_of(const Action& action, const Parts& parts) {
  std::vector<Action> own{{-1, "PART", -1, -1, "", "all"}};
  if (const std::vector<Action>* list = list_of(action, parts)) own = *list;
  for (Action& part : own) {
    part.part_of = name(action);
    part.of_kind = action.kind;
    part.of_stage = action.stage;
  }
  return own;
}

/// Each computation with the calls up to the next one; what stands before the first is its too.
std::vector<Row> turns_of(const Action& action, const Parts& parts) {
  std::vector<Row> turns(1);
  bool computes = false;
  for (const Action& part : parts_of(action, parts)) {
    if (part.kind == "PART" && computes) turns.emplace_back();
    computes = computes || part.kind == "PART";
    turns.back().push_back({part});
  }
  return turns;
}

/// Of a pair turn by turn.
Row parts_before(const Cell& cell, const Parts& parts) {
  if (!has_parts(cell, parts)) return {};
  std::vector<std::vector<Row>> of_each;
  for (const Action& action : cell) of_each.push_back(turns_of(action, parts));
  Row row;
  for (std::size_t turn = 0;; ++turn) {
    bool some = false;
    for (const std::vector<Row>& turns : of_each) {
      if (turn >= turns.size()) continue;
      row.insert(row.end(), turns[turn].begin(), turns[turn].end());
      some = true;
    }
    if (!some) return row;
  }
}

}  // namespace

bool has_parts(const Cell& cell, const Parts& parts) {
  return std::any_of(cell.begin(), cell.end(),
                     [&](const Action& action) { return list_of(action, parts) != nullptr; });
}

Order with_parts(const Order& lists, const Parts& parts) {
  Order result;
  for (const Row& row : lists) {
    result.emplace_back();
    for (const Cell& cell : row) {
      const Row before = parts_before(cell, parts);
      result.back().insert(result.back().end(), before.begin(), before.end());
      result.back().push_back(cell);
    }
  }
  return result;
}

void chain_parts(const Parts& parts, Program& program) {
  for (const std::vector<int>& list : program.lists) {
    std::map<std::string, std::vector<int>> chains;  // by action, of the one or two that come next
    for (const int id : list) {
      Instruction& instruction = program.instructions[id];
      if (is_part(instruction.cell[0])) {
        chains[instruction.cell[0].part_of].push_back(id);
        continue;
      }
      if (!has_parts(instruction.cell, parts)) continue;
      instruction.has_parts = true;
      const std::vector<int> inputs = instruction.inputs;
      for (const auto& [action, chain] : chains) {
        std::vector<int> before = inputs, together;  // a run of calls with &, and what is behind it
        bool is_first = true;
        for (const int part : chain) {
          program.instructions[part].inputs = before;
          together.push_back(part);
          if (program.instructions[part].cell[0].beside) continue;
          before = together;
          together.clear();
          is_first = false;
        }
        if (!is_first)
          instruction.inputs.insert(instruction.inputs.end(), before.begin(), before.end());
        instruction.inputs.insert(instruction.inputs.end(), together.begin(), together.end());
      }
      chains.clear();
    }
  }
}

}  // namespace pipewright::reference
