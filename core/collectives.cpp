#include "core/collectives.hpp"

#include <algorithm>
#include <tuple>

namespace pipewright {
namespace {

struct Reduction {
  int stage = 0;
  int turn = 0;  // the k-th of its stage on its rank
  Collective::Member member;
};

/// Every REDUCE_GRAD, by rank, then program order.
std::vector<Reduction> reductions_of(const Program& program) {
  std::vector<Reduction> found;
  std::vector<int> turns;
  for (int r = 0; r < program.ranks(); ++r) {
    turns.assign(static_cast<std::size_t>(program.stages), 0);
    InstructionId before = kNoInstruction;
    for (InstructionId id = program.rank_begin[static_cast<std::size_t>(r)];
         id < program.rank_begin[static_cast<std::size_t>(r) + 1]; ++id) {
      const Instruction& in = program.code[id];
      if (in.kind == ActionKind::ReduceGrad)
        found.push_back({in.stage, turns[in.stage]++, {RankId(r), id, before}});
      if (!is_transfer(in.kind)) before = id;
    }
  }
  return found;
}

/// By stage and rank: 1 where the rank's list holds an F, I, W or B of the stage.
std::vector<std::uint8_t> computed_by(const Program& program) {
  const auto ranks = static_cast<std::size_t>(program.ranks());
  std::vector<std::uint8_t> computes(static_cast<std::size_t>(program.stages) * ranks, 0);
  for (std::size_t r = 0; r < ranks; ++r) {
    for (InstructionId id = program.rank_begin[r]; id < program.rank_begin[r + 1]; ++id) {
      const Instruction& in = program.code[id];
      if (is_compute(in.kind)) computes[in.stage * ranks + r] = 1;
    }
  }
  for (const auto& [id, second] : program.pairs) {
    const auto rank = static_cast<std::size_t>(program.rank_of(id).value);
    computes[static_cast<std::size_t>(second.stage.value) * ranks + rank] = 1;
  }
  return computes;
}

}  // namespace

std::vector<Collective> collectives_of(const Program& program) {
  std::vector<Collective> collectives;
  std::vector<Reduction> reductions = reductions_of(program);
  if (reductions.empty()) return collectives;
  const std::vector<std::uint8_t> computes = computed_by(program);
  const auto ranks = static_cast<std::size_t>(program.ranks());
  std::erase_if(reductions, [&](const Reduction& one) {
    return computes[static_cast<std::size_t>(one.stage) * ranks +
                    static_cast<std::size_t>(one.member.rank.value)] == 0;
  });
  std::sort(reductions.begin(), reductions.end(), [](const Reduction& a, const Reduction& b) {
    return std::tie(a.stage, a.turn, a.member.rank) < std::tie(b.stage, b.turn, b.member.rank);
  });
  for (std::size_t begin = 0; begin < reductions.size();) {
    Collective one{StageId(reductions[begin].stage), {}};
    std::size_t end = begin;
    for (; end < reductions.size() && reductions[end].stage == reductions[begin].stage &&
           reductions[end].turn == reductions[begin].turn;
         ++end)
      one.members.push_back(reductions[end].member);
    if (one.members.size() > 1) collectives.push_back(std::move(one));
    begin = end;
  }
  return collectives;
}

}  // namespace pipewright
