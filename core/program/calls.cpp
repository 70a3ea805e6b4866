#include "core/program/calls.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "core/order/call_faults.hpp"
#include "core/order/devices.hpp"

namespace pipewright {
namespace {

using ByRank = std::vector<std::vector<InstructionId>>;

/// The calls of each group, by rank, in program order; those that make groups under "", which is no
/// name.
std::map<std::string, ByRank> calls_by_group(const Program& program) {
  const auto ranks = static_cast<std::size_t>(program.ranks());
  std::map<std::string, ByRank> groups;
  for (std::size_t r = 0; r < ranks; ++r) {
    for (InstructionId id = program.rank_begin[r]; id < program.rank_begin[r + 1]; ++id) {
      const Instruction& in = program.code[id];
      const bool makes = in.kind == ActionKind::NewGroup;
      if (!makes && !is_group_collective(in.kind)) continue;
      ByRank& of = groups[makes ? "" : program.call(in).group];
      of.resize(ranks);
      of[r].push_back(id);
    }
  }
  return groups;
}

/// The more of what is given for the collective and for the call of this number.
PartWork larger_of(const PartWork& given, const Program& program, std::uint32_t number) {
  const std::size_t of_order = program.calls.size() - program.works.size();
  if (number < of_order) return given;
  const PartWork& own = program.works[number - of_order];
  return own.up_to > given.up_to ? own : given;
}

/// The call of a rank that stands for devices among which it is.
Collective collective_inside(const Program& program, RankId rank, InstructionId id,
                             const AxisSpan& group) {
  return {.kind = program.code[id].kind,
          .stage = {},
          .members = {{rank, id}},
          .call_bytes = bytes_of(program.call(program.code[id])),
          .devices = group.devices,
          .stride = group.stride,
          .given = larger_of({}, program, program.code[id].micro_batch)};
}

/// The turn-th calls of the ranks.
Collective collective_of(const Program& program, const ByRank& calls,
                         const std::vector<RankId>& ranks, std::size_t turn) {
  Collective one;
  std::set<std::uint32_t> numbers;  // of different calls; mostly it is one
  for (const RankId rank : ranks) {
    const auto& own = calls[static_cast<std::size_t>(rank.value)];
    if (turn >= own.size()) {
      one.missing.push_back(rank);
      continue;
    }
    one.members.push_back({rank, own[turn]});
    if (!program.part_of.empty())
      one.differ |= !difference(program, one.members.front().instruction, own[turn]).empty();
    numbers.insert(program.code[own[turn]].micro_batch);
  }
  one.kind = program.code[one.members.front().instruction].kind;
  for (const std::uint32_t number : numbers) {
    const Call& call = program.calls[number];
    one.call_bytes = std::max(one.call_bytes, bytes_of(call));
    one.given = larger_of(one.given, program, number);
    for (const std::uint32_t other : numbers)
      one.differ |= !difference(call, program.calls[other]).empty();
  }
  return one;
}

/// The calls of these ranks meet turn by turn.
void append_turns(const ByRank& calls, const std::vector<RankId>& ranks, Program& program) {
  std::size_t turns = 0;
  for (const RankId rank : ranks)
    turns = std::max(turns, calls[static_cast<std::size_t>(rank.value)].size());
  for (std::size_t turn = 0; ranks.size() > 1 && turn < turns; ++turn)
    program.collectives.push_back(collective_of(program, calls, ranks, turn));
}

}  // namespace

std::string_view difference(const Program& program, InstructionId a, InstructionId b) {
  const Instruction &one = program.code[a], &other = program.code[b];
  const std::string_view what = difference(program.call(one), program.call(other));
  if (!what.empty() || program.part_of.empty()) return what;
  const Action *of_one = program.action_of_part(a), *of_other = program.action_of_part(b);
  if (of_one == nullptr || of_other == nullptr) return of_one == of_other ? "" : "action";
  const bool same = of_one->stage == of_other->stage && of_one->kind == of_other->kind;
  return same ? "" : "action";
}

void append_calls(const Order& order, Program& program) {
  if (program.calls.empty()) return;
  auto ranks_of = ranks_by_group(order);
  for (int r = 0; r < program.ranks(); ++r) ranks_of[""].emplace_back(r);
  for (const auto& [group, calls] : calls_by_group(program)) {
    if (const auto inside = span_of(program.mesh, group)) {
      for (std::size_t r = 0; inside->devices > 1 && r < calls.size(); ++r) {
        for (const InstructionId id : calls[r])
          program.collectives.push_back(
              collective_inside(program, RankId(static_cast<int>(r)), id, *inside));
      }
      continue;
    }
    if (const auto along = span_of(program.devices, group)) {
      for (int r = 0; r < program.ranks(); ++r) {
        if (place_in(*along, RankId(r)) == 0)
          append_turns(calls, ranks_in(*along, RankId(r)), program);
      }
      continue;
    }
    append_turns(calls, ranks_of.at(group), program);
  }
}

}  // namespace pipewright
