#include "sim/dumps/explanation.hpp"

#include <algorithm>
#include <set>

#include "core/costs/costs.hpp"
#include "core/program/calls.hpp"
#include "core/program/lower.hpp"
#include "sim/judgement.hpp"

namespace pipewright::sim {
namespace {

/// What instructions of a Program are in the dumps.
class Origins {
 public:
  Origins(const Program& program, const RecordedOrder& recorded)
      : program_(program), origin_(recorded.origin) {}

  /// nullopt: the rank has not made this call.
  std::optional<CallRef> of(InstructionId id) const {
    const RankId rank = program_.rank_of(id);
    const auto r = static_cast<std::size_t>(rank.value);
    const std::size_t cell = id - program_.rank_begin[r];
    if (cell >= origin_[r].size()) return std::nullopt;
    return CallRef{rank, origin_[r][cell]};
  }

 private:
  const Program& program_;
  const std::vector<std::vector<std::size_t>>& origin_;
};

Program program_of(const Order& order, Guarantee guarantee) {
  return lower(order, policy_of(guarantee));
}

WaitReport judged(const Program& program) {
  return judge({}, program, CostTable::uniform(1, {}, Nanoseconds(0)));
}

Standstill standstill_of(const Program& program, const Collective& collective,
                         const Origins& origins) {
  Standstill stands;
  stands.missing = collective.missing;
  const InstructionId first = collective.members.front().instruction;
  for (const Collective::Member& member : collective.members) {
    stands.calls.push_back(*origins.of(member.instruction));
    if (stands.differ.empty()) stands.differ = difference(program, first, member.instruction);
  }
  return stands;
}

/// Of a transfer end that meets nobody, or one for something else.
Standstill standstill_of(const Program& program, InstructionId end, const Origins& origins) {
  const Instruction& in = program.code[end];
  Standstill stands{.calls = {*origins.of(end)}};
  if (in.link == kNoInstruction) {
    stands.missing = {program.call(in).peer};
    return stands;
  }
  stands.calls.push_back(*origins.of(in.link));
  std::ranges::sort(stands.calls);
  stands.differ = difference(program, end, in.link);
  return stands;
}

std::vector<Standstill> standstills_of(const Program& program, const WaitReport& report,
                                       const Origins& origins) {
  std::vector<Standstill> all;
  std::set<std::uint32_t> collectives;
  std::set<InstructionId> transfers;  // the first end of each
  for (const StuckHead& head : report.stuck) {
    const Instruction& in = program.code[head.instruction];
    if (in.in_collective()) {
      const Collective& collective = program.collectives[in.route];
      if (!collective.can_start() && collectives.insert(in.route).second)
        all.push_back(standstill_of(program, collective, origins));
    } else if (is_transfer(in.kind)) {
      const bool never = in.link == kNoInstruction || in.has(Instruction::kMismatch);
      if (never && transfers.insert(std::min(head.instruction, in.link)).second)
        all.push_back(standstill_of(program, head.instruction, origins));
    }
  }
  return all;
}

/// Without the steps inside a rank, from what it has called to what it owes.
std::vector<CallWait> waits_of(const Program& program, const std::vector<WaitStep>& cycle,
                               const Origins& origins) {
  std::vector<CallWait> waits;
  for (const WaitStep& step : cycle) {
    const auto waiting = origins.of(step.instruction);
    const RankId other = program.rank_of(step.waits_for);
    if (!waiting || other == step.rank) continue;
    const bool is_made = origins.of(step.waits_for).has_value();
    waits.push_back({*waiting, other, is_made ? origins.of(step.behind) : std::nullopt});
  }
  return waits;
}

std::vector<RankAtEnd> ranks_at_end(const DumpedJob& job, const OpenCalls& open) {
  std::vector<RankAtEnd> ranks;
  for (std::size_t r = 0; r < job.dumps.size(); ++r) {
    const auto& calls = job.dumps[r].calls;
    RankAtEnd& own = ranks.emplace_back();
    own.calls = calls.size();
    for (std::size_t at = 0; at < calls.size(); ++at) {
      if (calls[at].state != CallState::Completed) continue;
      ++own.completed;
      own.last_completed = at;
    }
    std::ranges::copy_if(open[r], std::back_inserter(own.waiting),
                         [&](std::size_t at) { return calls[at].state != CallState::Completed; });
  }
  return ranks;
}

/// Who owes calls although nothing holds it up.
std::vector<RankId> absent_ranks(const Explanation& explained, const RecordedOrder& recorded) {
  std::vector<RankId> absent;
  for (std::size_t r = 0; r < recorded.owed.size(); ++r) {
    if (!recorded.owed[r].empty() && explained.ranks[r].waiting.empty())
      absent.emplace_back(static_cast<int>(r));
  }
  return absent;
}

/// The cycle that closes if a rank comes to what it owes when what it has called has ended.
void find_waits(const RecordedOrder& recorded, Explanation& explained) {
  explained.cycle =
      waits_of(explained.program, explained.report.cycle, Origins(explained.program, recorded));
  const bool owes =
      std::ranges::any_of(recorded.owed, [](const auto& calls) { return !calls.empty(); });
  if (!explained.cycle.empty() || !owes) return;
  const Program continued = program_of(continued_order(recorded), explained.guarantee);
  explained.cycle = waits_of(continued, judged(continued).cycle, Origins(continued, recorded));
  if (explained.cycle.empty()) explained.absent = absent_ranks(explained, recorded);
}

}  // namespace

Explanation explain(DumpedJob job) {
  Explanation explained;
  const OpenCalls open = open_calls(job);
  explained.ranks = ranks_at_end(job, open);
  RecordedOrder recorded;
  for (const Guarantee guarantee : guarantees_of(job)) {
    recorded = recorded_order(job, open, guarantee);
    explained.guarantee = guarantee;
    explained.program = program_of(recorded.order, guarantee);
    explained.report = judged(explained.program);
    if (explained.verdict() != Verdict::Ok) break;
  }
  explained.job = std::move(job);
  if (explained.verdict() == Verdict::Ok) return explained;
  explained.standstills =
      standstills_of(explained.program, explained.report, Origins(explained.program, recorded));
  find_waits(recorded, explained);
  explained.shifts = shifts_of(explained.job, explained.standstills);
  return explained;
}

}  // namespace pipewright::sim
