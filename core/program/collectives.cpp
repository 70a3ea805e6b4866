#include "core/program/collectives.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/order/devices.hpp"
#include "core/program/calls.hpp"

namespace pipewright {
namespace {

bool may_be_collective(ActionKind kind) {
  return kind == ActionKind::ReduceGrad || kind == ActionKind::Unshard || is_of_all(kind);
}

/// One REDUCE_GRAD or UNSHARD, or one of all ranks, which has stage 0 here.
struct Candidate {
  int stage = 0;
  int part = 0;   // of the parameters: devices that differ along "tp" hold different ones
  int group = 0;  // of replicas that have all parts together, of an UNSHARD
  ActionKind kind = ActionKind::ReduceGrad;
  int turn = 0;  // the k-th of its kind and stage on its rank
  Collective::Member member;
};

/// All of them, by rank, then program order.
std::vector<Candidate> candidates_of(const Program& program) {
  std::vector<Candidate> found;
  std::vector<int> reductions, unshardings;
  for (int r = 0; r < program.ranks(); ++r) {
    reductions.assign(static_cast<std::size_t>(program.stages), 0);
    unshardings = reductions;
    int norms = 0, ties = 0;
    for (InstructionId id = program.rank_begin[static_cast<std::size_t>(r)];
         id < program.rank_begin[static_cast<std::size_t>(r) + 1]; ++id) {
      const Instruction& in = program.code[id];
      if (!may_be_collective(in.kind)) continue;
      if (is_of_all(in.kind)) {
        int& turn = in.kind == ActionKind::ReduceNorm ? norms : ties;
        found.push_back({0, 0, 0, in.kind, turn++, {RankId(r), id}});
        continue;
      }
      auto& turns = in.kind == ActionKind::ReduceGrad ? reductions : unshardings;
      found.push_back({in.stage, 0, 0, in.kind, turns[in.stage]++, {RankId(r), id}});
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

/// Neighbours of one stage, kind and turn, if there are two or more.
std::vector<Collective> grouped(const std::vector<Candidate>& sorted) {
  std::vector<Collective> collectives;
  const auto key = [](const Candidate& c) {
    return std::tie(c.stage, c.kind, c.turn, c.part, c.group);
  };
  for (std::size_t begin = 0; begin < sorted.size();) {
    Collective one{sorted[begin].kind, StageId(sorted[begin].stage)};
    std::size_t end = begin;
    for (; end < sorted.size() && key(sorted[end]) == key(sorted[begin]); ++end)
      one.members.push_back(sorted[end].member);
    if (one.members.size() > 1) collectives.push_back(std::move(one));
    begin = end;
  }
  return collectives;
}

void mark_members(Program& program) {
  for (std::size_t c = 0; c < program.collectives.size(); ++c) {
    for (const Collective::Member& member : program.collectives[c].members) {
      Instruction& in = program.code[member.instruction];
      in.route = static_cast<std::uint32_t>(c);
      const bool on_host = is_of_all(in.kind) || in.kind == ActionKind::NewGroup;
      if (program.policy.issue == Issue::Stream && !on_host)
        in.flags &= static_cast<std::uint8_t>(~Instruction::kOnComputeLane);
    }
  }
}

/// Gives each UNSHARD the group of its rank among the ranks that compute its stage and hold the
/// same part of it.
void set_groups(const Program& program, const std::vector<std::uint8_t>& computes,
                std::vector<Candidate>& candidates) {
  if (program.sharding.groups == 1) return;
  const auto ranks = static_cast<std::size_t>(program.ranks());
  for (Candidate& one : candidates) {
    if (one.kind != ActionKind::Unshard) continue;
    int replicas = 0, before = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      const RankId rank(static_cast<std::int64_t>(r));
      if (computes[static_cast<std::size_t>(one.stage) * ranks + r] == 0 ||
          coordinate_of(program.devices, kTensorAxis, rank) != one.part)
        continue;
      ++replicas;
      before += rank < one.member.rank ? 1 : 0;
    }
    one.group = group_of(program.sharding, before, replicas);
  }
}

/// All but the calls.
std::vector<Collective> collectives_of_stages(const Program& program) {
  std::vector<Candidate> candidates = candidates_of(program);
  if (candidates.empty()) return {};
  const std::vector<std::uint8_t> computes = computed_by(program);
  const auto ranks = static_cast<std::size_t>(program.ranks());
  std::erase_if(candidates, [&](const Candidate& one) {
    return has_stage(one.kind) && computes[static_cast<std::size_t>(one.stage) * ranks +
                                           static_cast<std::size_t>(one.member.rank.value)] == 0;
  });
  for (Candidate& one : candidates) {
    if (one.kind != ActionKind::ReduceNorm)
      one.part = coordinate_of(program.devices, kTensorAxis, one.member.rank);
  }
  set_groups(program, computes, candidates);
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.stage, a.kind, a.turn, a.part, a.group, a.member.rank) <
           std::tie(b.stage, b.kind, b.turn, b.part, b.group, b.member.rank);
  });
  std::vector<Collective> collectives = grouped(candidates);
  std::vector<std::uint8_t> sharded(static_cast<std::size_t>(program.stages), 0);
  for (const Collective& one : collectives) {
    if (one.kind == ActionKind::Unshard) sharded[static_cast<std::size_t>(one.stage.value)] = 1;
  }
  for (Collective& one : collectives) {
    if (one.kind == ActionKind::ReduceNorm) one.block = devices_of_rank(program.devices);
    one.sharded = has_stage(one.kind) && sharded[static_cast<std::size_t>(one.stage.value)] != 0;
    if (one.sharded && one.kind == ActionKind::ReduceGrad) one.groups = program.sharding.groups;
  }
  return collectives;
}

}  // namespace

void find_collectives(const Order& order, Program& program) {
  program.collectives = collectives_of_stages(program);
  append_calls(order, program);
  mark_members(program);
}

RingWork ring_work(const Collective& collective, std::int64_t parameter_bytes) {
  const std::int64_t n = collective.size();
  if (collective.kind == ActionKind::Broadcast) return {n - 1, n * parameter_bytes};
  if (collective.kind == ActionKind::RingSend) return {1, n * parameter_bytes};
  const bool once = collective.sharded || (is_group_collective(collective.kind) &&
                                           collective.kind != ActionKind::AllReduce);
  const std::int64_t rounds = once ? 1 : 2;
  return {rounds * (n - 1), rounds * (n - 1) * parameter_bytes};
}

GroupedSums grouped_sums(const Collective& collective, std::int64_t parameter_bytes) {
  const std::size_t groups = static_cast<std::size_t>(collective.groups);
  const std::size_t each = std::max<std::size_t>(1, collective.members.size() / groups);
  GroupedSums sums;
  sums.part_bytes =
      (parameter_bytes + static_cast<std::int64_t>(each) - 1) / static_cast<std::int64_t>(each);
  Collective one{collective.kind, collective.stage};
  for (std::size_t begin = 0; begin < collective.members.size(); begin += each) {
    const auto first = collective.members.begin() + static_cast<std::ptrdiff_t>(begin);
    const std::size_t count = std::min(each, collective.members.size() - begin);
    one.members.assign(first, first + static_cast<std::ptrdiff_t>(count));
    one.sharded = true;
    sums.inside.push_back(one);
  }
  one.sharded = false;
  for (std::size_t part = 0; part < each; ++part) {
    one.members.clear();
    for (std::size_t m = part; m < collective.members.size(); m += each)
      one.members.push_back(collective.members[m]);
    sums.across.push_back(one);
  }
  return sums;
}

}  // namespace pipewright
