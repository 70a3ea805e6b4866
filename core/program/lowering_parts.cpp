#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "core/program/lowering.hpp"

namespace pipewright::lowering {
namespace {

std::int64_t weights_of(const std::vector<Part>& parts) {
  std::int64_t sum = 0;
  for (const Part& part : parts) sum += part.is_computation() ? part.weight : 0;
  return sum;
}

}  // namespace

PartLists::PartLists(const Order& order, Program& program) {
  for (const ActionParts& of : order.parts) {
    std::vector<List>& turns = turns_[{of.stage.value, of.kind}];
    turns.emplace_back();
    std::int64_t before = 0;
    bool computes = false;
    const std::int64_t all = weights_of(of.parts);
    for (const Part& part : of.parts) {
      // A turn is a computation with the calls up to the next one.
      if (part.is_computation() && computes) turns.emplace_back();
      computes |= part.is_computation();
      turns.back().push_back({.kind = part.call.kind,
                              .micro_batch = static_cast<std::uint32_t>(program.calls.size())});
      program.calls.push_back(part.call);
      const std::int64_t begin = part.is_computation() ? before : 0;
      program.works.push_back({of.stage, of.kind, begin, begin + part.weight, all, part.beside});
      if (part.is_computation()) before += part.weight;
    }
  }
}

const std::vector<PartLists::List>& PartLists::turns_of(const Action& action, Program& program) {
  const std::pair key(action.stage.value, action.kind);
  const auto listed = turns_.find(key);
  if (listed != turns_.end()) return listed->second;
  std::vector<List>& turns = whole_[key];
  if (turns.empty()) {
    turns = {{{.kind = ActionKind::Part,
               .micro_batch = static_cast<std::uint32_t>(program.calls.size())}}};
    program.calls.push_back({.kind = ActionKind::Part, .data = "all"});
    program.works.push_back({action.stage, action.kind, 0, 1, 1});
  }
  return turns;
}

void PartLists::append(const Action& action, const Action* partner, Program& program) {
  const auto has = [&](const Action& one) { return turns_.contains({one.stage.value, one.kind}); };
  if (!has(action) && (partner == nullptr || !has(*partner))) return;
  std::vector<std::pair<const Action*, const std::vector<List>*>> of_each;
  for (const Action* one : {&action, partner}) {
    if (one != nullptr) of_each.emplace_back(one, &turns_of(*one, program));
  }
  std::size_t longest = 0;
  for (const auto& [one, turns] : of_each) longest = std::max(longest, turns->size());
  for (std::size_t turn = 0; turn < longest; ++turn) {
    for (const auto& [one, turns] : of_each) {
      if (turn >= turns->size()) continue;
      for (const Instruction& part : (*turns)[turn]) {
        Action owner = *one;
        owner.version = -1;
        program.part_of.emplace_back(static_cast<InstructionId>(program.code.size()), owner);
        program.code.push_back(part);
      }
    }
  }
}

namespace {

/// The parts of an action so far.
struct Chain {
  Action action;
  std::vector<InstructionId> before;  // what the next part waits for
  std::vector<InstructionId> beside;  // calls that are under way beside the next part
};

}  // namespace

void chain_parts(Program& program) {
  if (program.part_of.empty()) return;
  std::vector<std::pair<InstructionId, InstructionId>> added;
  const auto& parts = program.part_of;
  for (auto first = parts.begin(); first != parts.end();) {
    auto last = first;  // of the parts that stand before one action, or pair
    while (std::next(last) != parts.end() && std::next(last)->first == last->first + 1) ++last;
    const InstructionId action = last->first + 1;
    std::vector<InstructionId> of_action;
    const InstructionId received = program.code[action].link;
    if (received != kNoInstruction) of_action.push_back(received);
    for (const auto& [id, input] : program.extra_inputs_of(action)) of_action.push_back(input);
    std::vector<Chain> chains;
    for (; first <= last; ++first) {
      auto own = std::ranges::find(chains, first->second, &Chain::action);
      if (own == chains.end()) own = chains.insert(chains.end(), {first->second, of_action, {}});
      for (const InstructionId input : own->before) added.emplace_back(first->first, input);
      own->beside.push_back(first->first);
      if (!program.work(program.code[first->first]).beside)
        own->before = std::exchange(own->beside, {});
    }
    for (const Chain& chain : chains) {
      for (const auto* of : {&chain.before, &chain.beside})
        for (const InstructionId end : *of) added.emplace_back(action, end);
    }
  }
  auto& inputs = program.extra_inputs;
  inputs.insert(inputs.end(), added.begin(), added.end());
  std::ranges::sort(inputs);
  inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
  for (const auto& [id, input] : added) program.code[id].flags |= Instruction::kExtraInput;
}

}  // namespace pipewright::lowering
