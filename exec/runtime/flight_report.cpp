#include "exec/runtime/flight_report.hpp"

#include <algorithm>
#include <utility>

namespace pipewright::exec {
namespace {

/// The heads of a rank's lanes.
std::vector<StuckHead> heads_of(const WaitReport& waits, RankId rank) {
  std::vector<StuckHead> heads;
  for (const StuckHead& head : waits.stuck) {
    if (head.rank == rank) heads.push_back(head);
  }
  return heads;
}

/// The compute lane's head decides; a rank that has only transfers left waits for all of them.
bool waits_for_good(const std::vector<StuckHead>& heads) {
  if (!heads.empty() && heads.front().lane == 0) return heads.front().for_good;
  return std::any_of(heads.begin(), heads.end(), [](const auto& head) { return head.for_good; });
}

RankState state_of(const RankLook& look, const std::vector<StuckHead>& heads,
                   bool out_of_patience) {
  if (look.dead) return RankState::Dead;
  if (look.standing.phase == Standing::Phase::Preparing) return RankState::Preparing;
  if (look.standing.phase == Standing::Phase::Done) return RankState::Done;
  if (look.awaits_time) return RankState::Waiting;
  if (look.standing.waits_for == kNoInstruction) {
    return out_of_patience ? RankState::Slow : RankState::Working;
  }
  return waits_for_good(heads) ? RankState::Stuck : RankState::Waiting;
}

void find_place(const Program& program, const Progress& progress, RankReport& report) {
  const auto rank = static_cast<std::size_t>(report.rank.value);
  InstructionId transfer = kNoInstruction;
  for (InstructionId id = program.rank_begin[rank]; id < program.rank_begin[rank + 1]; ++id) {
    const Instruction& in = program.code[id];
    const bool ended = progress.ended[id] != 0;
    if (!in.has(Instruction::kOnComputeLane)) {
      if (!ended && transfer == kNoInstruction) transfer = id;
    } else if (ended) {
      report.last_finished = id;
    } else {
      report.first_unfinished = id;
      return;
    }
  }
  report.first_unfinished = transfer;
}

/// A rank waits for an end of its own; what is owed is the other end.
InstructionId owed(const Program& program, InstructionId waits_for) {
  if (waits_for == kNoInstruction || !is_transfer(program.code[waits_for].kind)) return waits_for;
  const InstructionId other = program.code[waits_for].link;
  return other == kNoInstruction ? waits_for : other;
}

std::vector<LaneReport> lanes_of(const LaneTable& lanes, const std::vector<StuckHead>& heads) {
  std::vector<LaneReport> reports;
  for (const StuckHead& head : heads) {
    LaneReport report{head.lane, kNoInstruction, head.instruction};
    for (const InstructionId id : lanes.instructions_of(lanes.lane_of[head.instruction])) {
      if (id == head.instruction) break;
      report.last_finished = id;
    }
    reports.push_back(report);
  }
  return reports;
}

}  // namespace

std::string_view to_string(RankState state) {
  switch (state) {
    case RankState::Preparing:
      return "preparing";
    case RankState::Working:
      return "working";
    case RankState::Waiting:
      return "waiting";
    case RankState::Done:
      return "done";
    case RankState::Slow:
      return "slow";
    case RankState::Stuck:
      return "stuck";
    case RankState::Dead:
      return "dead";
  }
  return "preparing";
}

FlightReport flight_report(const Program& program, const Progress& progress, WaitReport waits,
                           std::vector<RankLook> looks, bool out_of_patience) {
  FlightReport report;
  const LaneTable lanes = lane_table(program);
  for (RankLook& look : looks) {
    const std::vector<StuckHead> heads = heads_of(waits, look.rank);
    RankReport rank;
    rank.rank = look.rank;
    rank.state = state_of(look, heads, out_of_patience);
    find_place(program, progress, rank);
    if (rank.state == RankState::Stuck || rank.state == RankState::Waiting) {
      rank.waits_for = owed(program, look.standing.waits_for);
    }
    if (look.standing.settled_ns > 0) {
      rank.idle_ns = std::max<std::int64_t>(0, look.looked_ns - look.standing.settled_ns);
    }
    rank.lanes = lanes_of(lanes, heads);
    rank.recent = std::move(look.recent);
    report.ranks.push_back(std::move(rank));
  }
  report.waits = std::move(waits);
  return report;
}

}  // namespace pipewright::exec
