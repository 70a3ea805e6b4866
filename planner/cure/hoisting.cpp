#include "planner/cure/hoisting.hpp"

#include <algorithm>
#include <tuple>

#include "planner/cure/reading.hpp"

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

/// The move of a cycle that is likeliest to be enough: of an end whose partner is there already, a
/// receive before a send, over the shortest way. kNoInstruction: none may be moved.
HeadWait best_move(const Reading& reading, const Program& program,
                   const std::vector<HeadWait>& cycle) {
  HeadWait best;
  std::tuple<bool, bool, std::uint32_t, std::int32_t> least;
  for (const HeadWait& wait : cycle) {
    const InstructionId end = wait.waits_for;
    if (end == wait.behind || !is_transfer(program.code[end].kind) ||
        !reading.may_move(end, wait.behind)) {
      continue;
    }
    const std::tuple key{!reading.is_awaited(end), is_send(program.code[end].kind),
                         reading.place_of(end) - reading.place_of(wait.behind),
                         reading.rank_of(end).value};
    if (best.head != kNoInstruction && least <= key) continue;
    best = wait;
    least = key;
  }
  return best;
}

HoistedOrder result_of(const Reading& reading, const Program& program, const Order& listed,
                       const std::vector<std::uint8_t>& moved) {
  HoistedOrder result{
      {.ranks = {}, .placement = listed.placement, .micro_batches = listed.micro_batches}, {}};
  for (int r = 0; r < program.ranks(); ++r) {
    const auto begin = program.rank_begin[static_cast<std::size_t>(r)],
               end = program.rank_begin[static_cast<std::size_t>(r) + 1];
    auto& row = result.order.ranks.emplace_back();
    row.reserve(end - begin);
    for (std::uint32_t at = begin; at < end; ++at) row.push_back(program.cell(reading.at(at)));
    for (std::uint32_t at = begin; at < end; ++at) {
      if (moved[reading.at(at)] != 0)
        result.moves.push_back({RankId(r), row[at - begin], row[at - begin + 1]});
    }
  }
  return result;
}

}  // namespace

std::optional<HoistedOrder> hoisted(const Order& listed, const CommPolicy& policy,
                                    const CostTable& costs, const LowerOptions& options) {
  const LowerOptions as_it_is{.fragment = options.fragment, .optimizer = false};
  const Program program = lower(listed, policy, as_it_is);
  // Where each transfer has a queue of its own, its place holds nothing up.
  if (policy.issue == Issue::Stream && policy.channel == Channel::Tag) return std::nullopt;
  Reading reading(program, partners_by_tensor(listed, as_it_is), costs);
  std::vector<std::uint8_t> moved(program.code.size(), 0);
  reading.go_on();
  while (!reading.finished()) {
    const HeadWait move = best_move(reading, program, reading.cycle());
    if (move.head == kNoInstruction || moved[move.waits_for] == kMovesPerEnd) return std::nullopt;
    ++moved[move.waits_for];
    reading.move(move.waits_for, move.behind);
    reading.go_on();
  }
  return result_of(reading, program, listed, moved);
}

}  // namespace pipewright::planner
