#include "planner/fix/hoisting.hpp"

#include <algorithm>
#include <tuple>

#include "planner/fix/untimed_walk.hpp"

namespace pipewright::planner {
namespace {

constexpr std::uint8_t kMovesPerEnd = 4;

/// By instruction, the other end of its tensor: what `tag` matches, whatever the policy's own
/// positions say.
std::vector<InstructionId> partners_by_tensor(const Order& listed, const LowerOptions& options) {
  const Program program = lower(listed, {.channel = Channel::Tag}, options);
  std::vector<InstructionId> partners(program.code.size(), kNoInstruction);
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    if (is_transfer(program.code[id].kind)) partners[id] = program.code[id].link;
  }
  return partners;
}

using MoveKey = std::tuple<bool, bool, std::uint32_t, std::int32_t>;

/// Least: the end whose partner is there already, a receive before a send, the shortest way.
/// nullopt: what is waited for is no transfer end that may move.
std::optional<MoveKey> key_of(const UntimedWalk& walk, const Program& program,
                              const HeadWait& wait) {
  const InstructionId end = wait.waits_for;
  if (end == wait.behind || !is_transfer(program.code[end].kind) ||
      !walk.may_move(end, wait.behind)) {
    return std::nullopt;
  }
  return MoveKey{!walk.is_awaited(end), is_send(program.code[end].kind),
                 walk.place_of(end) - walk.place_of(wait.behind), walk.rank_of(end).value};
}

/// The moves that break a cycle: the one with the least key, and where every second is wanted, from
/// there on each second end whose partner is there. (Moved on all ranks, the ends would wait for
/// each other the other way round.) Empty: none may be moved.
std::vector<HeadWait> moves_for(const UntimedWalk& walk, const Program& program,
                                const std::vector<HeadWait>& cycle, HoistMoves wanted) {
  std::vector<std::optional<MoveKey>> keys;
  for (const HeadWait& wait : cycle) keys.push_back(key_of(walk, program, wait));
  std::size_t best = cycle.size();
  for (std::size_t k = 0; k < cycle.size(); ++k) {
    if (keys[k] && (best == cycle.size() || *keys[k] < *keys[best])) best = k;
  }
  if (best == cycle.size()) return {};
  std::vector<HeadWait> moves = {cycle[best]};
  if (wanted == HoistMoves::Fewest) return moves;
  for (std::size_t k = 2; k + 1 < cycle.size(); ++k) {
    const std::size_t at = (best + k) % cycle.size();
    if (!keys[at] || std::get<0>(*keys[at])) continue;
    moves.push_back(cycle[at]);
    ++k;
  }
  return moves;
}

HoistedOrder result_of(const UntimedWalk& walk, const Program& program, const Order& listed,
                       const std::vector<std::uint8_t>& moved) {
  HoistedOrder result{
      {.ranks = {}, .placement = listed.placement, .micro_batches = listed.micro_batches}, {}};
  for (int r = 0; r < program.ranks(); ++r) {
    const auto begin = program.rank_begin[static_cast<std::size_t>(r)],
               end = program.rank_begin[static_cast<std::size_t>(r) + 1];
    auto& row = result.order.ranks.emplace_back();
    row.reserve(end - begin);
    for (std::uint32_t at = begin; at < end; ++at) row.push_back(program.cell(walk.at(at)));
    for (std::uint32_t at = begin; at < end; ++at) {
      if (moved[walk.at(at)] != 0)
        result.moves.push_back({RankId(r), row[at - begin], row[at - begin + 1]});
    }
  }
  return result;
}

}  // namespace

std::optional<HoistedOrder> hoisted(const Order& listed, const CommPolicy& policy,
                                    const CostTable& costs, const LowerOptions& options,
                                    HoistMoves wanted) {
  const LowerOptions as_it_is{.fragment = options.fragment, .optimizer = false};
  const Program program = lower(listed, policy, as_it_is);
  // Where each transfer has a queue of its own, its place holds nothing up.
  if (policy.issue == Issue::Stream && policy.channel == Channel::Tag) return std::nullopt;
  UntimedWalk walk(program, partners_by_tensor(listed, as_it_is), costs);
  std::vector<std::uint8_t> moved(program.code.size(), 0);
  walk.go_on();
  while (!walk.finished()) {
    const auto moves = moves_for(walk, program, walk.cycle(), wanted);
    if (moves.empty()) return std::nullopt;
    for (const HeadWait& move : moves) {
      if (moved[move.waits_for]++ == kMovesPerEnd) return std::nullopt;
      walk.move(move.waits_for, move.behind);
    }
    walk.go_on();
  }
  return result_of(walk, program, listed, moved);
}

}  // namespace pipewright::planner
