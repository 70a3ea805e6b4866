#include "core/program/calls.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "core/order/call_faults.hpp"

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
    numbers.insert(program.code[own[turn]].micro_batch);
  }
  one.kind = program.code[one.members.front().instruction].kind;
  for (const std::uint32_t number : numbers) {
    const Call& call = program.calls[number];
    one.call_bytes = std::max(one.call_bytes, bytes_of(call));
    for (const std::uint32_t other : numbers)
      one.differ |= !difference(call, program.calls[other]).empty();
  }
  return one;
}

}  // namespace

void append_calls(const Order& order, Program& program) {
  if (program.calls.empty()) return;
  auto ranks_of = ranks_by_group(order);
  for (int r = 0; r < program.ranks(); ++r) ranks_of[""].emplace_back(r);
  for (const auto& [group, calls] : calls_by_group(program)) {
    const std::vector<RankId>& ranks = ranks_of.at(group);
    std::size_t turns = 0;
    for (const auto& own : calls) turns = std::max(turns, own.size());
    for (std::size_t turn = 0; ranks.size() > 1 && turn < turns; ++turn)
      program.collectives.push_back(collective_of(program, calls, ranks, turn));
  }
}

}  // namespace pipewright
