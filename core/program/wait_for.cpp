// Heads of the lanes, what each waits for and behind which other head that stands, then a shortest
// cycle among them.
#include "core/program/wait_for.hpp"

#include <algorithm>
#include <limits>

#include "core/program/calls.hpp"
#include "core/program/credit.hpp"
#include "core/program/first_uses.hpp"
#include "core/program/start_rules.hpp"
#include "core/program/wait_cause.hpp"
#include "core/program/wait_cycle.hpp"
#include "core/program/wait_text.hpp"

namespace pipewright {
namespace {

/// The state of a Program that stands still, seen lane by lane.
class StuckState {
 public:
  struct Head {
    RankId rank;
    int lane = 0;
    InstructionId instruction = kNoInstruction;
    /// A transfer end that is not issued yet (§2.2) waits for this and nothing else.
    InstructionId issue_waits_for = kNoInstruction;
    bool to_be_issued = false;
  };
  using Wait = HeadWait;

  StuckState(const Program& program, const Progress& progress,
             const std::vector<std::int64_t>& message_bytes)
      : program_(program),
        progress_(progress),
        credit_(program, message_bytes),
        lanes_(lane_table(program)),
        first_uses_(first_uses(program)) {
    find_issued();
    head_of_lane_.assign(lanes_.rank_of_lane.size(), kNone);
    head_of_host_.assign(static_cast<std::size_t>(program.ranks()), kNone);
    for (int r = 0; r < program.ranks(); ++r) find_heads(static_cast<std::size_t>(r));
    connects_ = connected(first_uses_, [this](InstructionId id) { return stands(id); });
  }

  const std::vector<Head>& heads() const { return heads_; }

  /// Waits of a head, sorted by what is waited for. `outside` is set if something it needs can
  /// never come.
  std::vector<Wait> waits_of(const Head& head, bool& outside) const {
    std::vector<Wait> waits;
    if (head.to_be_issued) {
      add(waits, head.instruction, head.issue_waits_for, outside);
      return waits;
    }
    if (program_.code[head.instruction].has(Instruction::kNotPassed)) {
      add(waits, head.instruction, head.instruction, outside);
      return waits;
    }
    for (const InstructionId id : at_head(head)) {
      const std::size_t before = waits.size();
      for (const InstructionId input : unmet_inputs(id)) add(waits, id, input, outside);
      if (waits.size() > before) continue;
      if (!is_connected(id)) {
        add_connections(waits, id, outside);
        continue;
      }
      const Instruction& in = program_.code[id];
      if (in.in_collective()) add_members(waits, head, outside);
      if (!is_transfer(in.kind) || is_under_way(id)) continue;
      const InstructionId other = partner_wait(id);
      if (other == kNoInstruction) {
        outside = true;
      } else {
        add(waits, id, other, outside);
      }
    }
    std::sort(waits.begin(), waits.end(), [](const Wait& a, const Wait& b) {
      return std::pair(a.waits_for, a.waiting) < std::pair(b.waits_for, b.waiting);
    });
    return waits;
  }

  /// What two ends say of one thing, where they differ.
  struct Mismatch {
    InstructionId later = kNoInstruction;  // the RECV, or the member of the higher rank
    InstructionId other = kNoInstruction;
  };
  /// A RECV that is ready and whose SEND, for another tensor, is ready or has left, or a member of
  /// a collective that is ready where one of a lower rank is and differs; the first by rank and
  /// program order.
  Mismatch reached_mismatch() const {
    Mismatch first;
    for (const Head& head : heads_) {
      if (head.to_be_issued) continue;
      for (const InstructionId id : at_head(head)) {
        const InstructionId other = mismatched_with(id);
        if (other != kNoInstruction && id < first.later) first = {id, other};
      }
    }
    return first;
  }

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  InstructionId mismatched_with(InstructionId id) const {
    const Instruction& in = program_.code[id];
    if (is_recv(in.kind) && in.has(Instruction::kMismatch)) {
      if (!is_connected(id)) return kNoInstruction;
      const bool met = progress_.ended[in.link] != 0 || is_ready(in.link);
      return met ? in.link : kNoInstruction;
    }
    if (!is_call(in.kind) || !in.in_collective() || !is_ready(id)) return kNoInstruction;
    const Collective& collective = program_.collectives[in.route];
    for (const Collective::Member& other : collective.members) {
      if (!collective.differ || other.instruction >= id) return kNoInstruction;
      if (!difference(program_, id, other.instruction).empty() && is_ready(other.instruction))
        return other.instruction;
    }
    return kNoInstruction;
  }

  /// At the head of its lane, with all that it needs on its own rank.
  bool is_ready(InstructionId id) const {
    return is_head(id) && !program_.code[id].has(Instruction::kNotPassed) &&
           unmet_inputs(id).empty() && is_connected(id);
  }

  /// The operation that makes its connections; nullptr: there is none.
  const FirstUse* first_use_of(InstructionId id) const {
    const std::uint32_t batch = first_uses_.empty() ? kNoBatch : program_.batch_of(id);
    const auto found = std::ranges::find(first_uses_, batch, &FirstUse::batch);
    return batch == kNoBatch || found == first_uses_.end() ? nullptr : &*found;
  }

  bool is_connected(InstructionId id) const {
    const FirstUse* use = first_use_of(id);
    return use == nullptr || connects_[static_cast<std::size_t>(use - first_uses_.data())] != 0;
  }

  bool stands(InstructionId id) const { return progress_.ended[id] != 0 || is_head(id); }

  /// What an end waits for whose operation does not connect: the ends of it that do not stand, and
  /// through its first ends the other ends of their connections that do not; where all stand, those
  /// whose operations do not connect either.
  void add_connections(std::vector<Wait>& waits, InstructionId id, bool& outside) const {
    const FirstUse& use = *first_use_of(id);
    const std::size_t before = waits.size();
    for (const InstructionId end : use.ends) {
      if (!stands(end)) add(waits, id, end, outside);
    }
    bool all_stand = waits.size() == before;
    for (const auto& [own, other] : use.connections) {
      if (other != kNoInstruction && stands(other)) continue;
      all_stand = false;
      add(waits, own, other, outside);
    }
    for (const auto& [own, other] : use.connections) {
      if (all_stand && !is_connected(other)) add(waits, own, other, outside);
    }
  }

  /// The transfer end in front of which a compute lane stands for want of a place in flight.
  struct Held {
    InstructionId end = kNoInstruction, waits_for = kNoInstruction;
  };

  void find_issued() {
    issued_.assign(program_.code.size(), 0);
    for (int r = 0; r < program_.ranks(); ++r) {
      bool reached = true;  // the last instruction of the compute lane before this place has ended
      for (InstructionId id = program_.rank_begin[static_cast<std::size_t>(r)];
           id < program_.rank_begin[static_cast<std::size_t>(r) + 1]; ++id) {
        const Instruction& in = program_.code[id];
        if (in.has(Instruction::kOnComputeLane)) {
          issued_[id] = 1;
          reached = progress_.ended[id] != 0;
        } else {
          issued_[id] = reached || in.has(Instruction::kAtStart);
        }
      }
    }
    held_.assign(static_cast<std::size_t>(program_.ranks()), {});
    for (int r = 0; r < program_.ranks(); ++r) hold_without_place(RankId(r));
    for (InstructionId id = 0; id < program_.code.size(); ++id) {
      const Instruction& in = program_.code[id];
      if (in.has(Instruction::kNotPassed) && !in.has(Instruction::kOnComputeLane)) issued_[id] = 0;
    }
  }

  /// What the compute lane has reached is issued as far as there is room in flight. It stands in
  /// front of the first that is not.
  void hold_without_place(RankId rank) {
    const std::vector<InstructionId> places = places_in_flight(program_, rank);
    if (places.empty()) return;
    const InstructionId begin = program_.rank_begin[static_cast<std::size_t>(rank.value)];
    Held& held = held_[static_cast<std::size_t>(rank.value)];
    for (const InstructionId id : issue_order(program_, rank)) {
      if (issued_[id] == 0 || program_.code[id].has(Instruction::kNotPassed)) return;
      const InstructionId place = places[id - begin];
      if (held.end == kNoInstruction && (place == kNoInstruction || progress_.ended[place] != 0))
        continue;
      if (held.end == kNoInstruction) held = {id, place};
      issued_[id] = 0;
    }
  }

  void find_heads(std::size_t rank) {
    const std::uint32_t begin = lanes_.rank_lane_begin[rank],
                        end = lanes_.rank_lane_begin[rank + 1];
    const RankId id(static_cast<std::int64_t>(rank));
    if (held_[rank].end != kNoInstruction) {
      head_of_lane_[begin] = heads_.size();
      heads_.push_back({id, 0, held_[rank].end, held_[rank].waits_for, true});
    } else {
      find_head(begin);
    }
    for (std::uint32_t lane = begin + 1; lane < end; ++lane) find_head(lane);
    if (program_.host_stands.empty()) return;
    const HostStand& stand = program_.host_stands[rank];
    if (stand.at == kNoInstruction) return;
    head_of_host_[rank] = heads_.size();
    heads_.push_back({id, static_cast<int>(end - begin), stand.at, stand.waits_for, true});
  }

  void find_head(std::uint32_t lane) {
    for (std::uint32_t i = lanes_.lane_begin[lane]; i < lanes_.lane_begin[lane + 1]; ++i) {
      const InstructionId id = lanes_.instructions[i];
      if (progress_.ended[id] != 0) continue;
      if (issued_[id] == 0) return;
      head_of_lane_[lane] = heads_.size();
      heads_.push_back(
          {.rank = lanes_.rank_of_lane[lane], .lane = lanes_.number_of(lane), .instruction = id});
      return;
    }
  }

  /// The head, or of a joined batch every end that is issued and has not ended.
  std::vector<InstructionId> at_head(const Head& head) const {
    std::vector<InstructionId> ends = {head.instruction};
    const std::uint32_t batch = program_.batch_of(head.instruction);
    if (batch == kNoBatch) return ends;
    for (const InstructionId id : lanes_.instructions_of(lanes_.lane_of[head.instruction])) {
      if (id > head.instruction && progress_.ended[id] == 0 && issued_[id] != 0 &&
          program_.batch_of(id) == batch)
        ends.push_back(id);
    }
    return ends;
  }

  bool is_head(InstructionId id) const {
    const std::size_t head = head_of_lane_[lanes_.lane_of[id]];
    if (head == kNone) return false;
    if (heads_[head].instruction == id) return true;
    const std::uint32_t batch = program_.batch_of(id);
    return batch != kNoBatch && batch == program_.batch_of(heads_[head].instruction) &&
           !heads_[head].to_be_issued && issued_[id] != 0 && progress_.ended[id] == 0;
  }

  std::vector<InstructionId> unmet_inputs(InstructionId id) const {
    std::vector<InstructionId> unmet;
    const auto rank = static_cast<std::size_t>(program_.rank_of(id).value);
    for_each_input(program_, id, program_.rank_begin[rank], [&](InstructionId input) {
      if (progress_.ended[input] == 0) unmet.push_back(input);
      return true;
    });
    return unmet;
  }

  /// A ready member waits for those that are not.
  void add_members(std::vector<Wait>& waits, const Head& head, bool& outside) const {
    const Collective& collective = program_.collectives[program_.code[head.instruction].route];
    for (const Collective::Member& other : collective.members) {
      if (other.rank == head.rank || progress_.ended[other.instruction] != 0) continue;
      if (is_ready(other.instruction)) continue;
      add(waits, head.instruction, other.instruction, outside);
    }
    outside |= !collective.missing.empty();
  }

  /// Of a transfer end that has its inputs: both ends have met, or the message has left.
  bool is_under_way(InstructionId id) const {
    const Instruction& in = program_.code[id];
    if (in.link == kNoInstruction || in.has(Instruction::kMismatch)) return false;
    if (progress_.ended[in.link] != 0) return is_recv(in.kind);
    return is_ready(in.link);
  }

  /// What a ready transfer end waits for: its partner, or the RECV that gives credit back.
  InstructionId partner_wait(InstructionId id) const {
    const Instruction& in = program_.code[id];
    if (is_recv(in.kind)) return in.link;
    if (!credit_.may_be_eager(id) || credit_.is_unlimited(id)) return in.link;
    for (InstructionId other =
             program_.rank_begin[static_cast<std::size_t>(program_.routes[in.route].source.value)];
         other < id; ++other) {
      const Instruction& o = program_.code[other];
      if (!is_send(o.kind) || credit_.account_of(other) != credit_.account_of(id)) continue;
      if (progress_.left[other] != 0 && (o.link == kNoInstruction || progress_.ended[o.link] == 0))
        return o.link;
    }
    return in.link;
  }

  void add(std::vector<Wait>& waits, InstructionId waiting, InstructionId waits_for,
           bool& outside) const {
    std::size_t behind = kNone;
    if (waits_for != kNoInstruction && progress_.ended[waits_for] == 0) {
      const auto rank = static_cast<std::size_t>(program_.rank_of(waits_for).value);
      if (program_.code[waits_for].has(Instruction::kNotPassed)) {
        behind = head_of_host_[rank];
      } else {
        const bool issued = issued_[waits_for] != 0;
        behind = head_of_lane_[issued ? lanes_.lane_of[waits_for] : lanes_.rank_lane_begin[rank]];
      }
    }
    if (behind == kNone) {
      outside = true;
    } else {
      waits.push_back({waits_for, behind, waiting});
    }
  }

  const Program& program_;
  const Progress& progress_;
  const Credit credit_;
  LaneTable lanes_;
  std::vector<std::uint8_t> issued_;
  std::vector<Head> heads_;  // by rank, then lane
  std::vector<std::size_t> head_of_lane_, head_of_host_;
  std::vector<Held> held_;  // by rank
  std::vector<FirstUse> first_uses_;
  std::vector<std::uint8_t> connects_;  // by first use
};

using Waits = HeadWaits;

/// A SEND without credit goes on when credit comes back or when its RECV is reached. Where all
/// stands still neither will happen; where something runs, one wait says too little.
void forget_credit_waits(const Program& program, Waits& waits) {
  for (auto& of_head : waits) {
    std::erase_if(of_head, [&](const StuckState::Wait& wait) {
      const Instruction& in = program.code[wait.waiting];
      return is_send(in.kind) && is_recv(program.code[wait.waits_for].kind) &&
             wait.waits_for != in.link;
    });
  }
}

/// Which heads what runs now can still free, directly or through others: all they wait for is
/// behind such heads.
std::vector<bool> may_go_on(const Waits& waits, const std::vector<bool>& never) {
  std::vector<std::vector<std::size_t>> waiters(waits.size());
  std::vector<std::size_t> missing(waits.size()), free;
  std::vector<bool> may(waits.size(), false);
  for (std::size_t at = 0; at < waits.size(); ++at) {
    missing[at] = waits[at].size() + (never[at] ? 1 : 0);
    for (const auto& wait : waits[at]) waiters[wait.behind].push_back(at);
    if (missing[at] == 0) free.push_back(at);
  }
  while (!free.empty()) {
    const std::size_t at = free.back();
    free.pop_back();
    may[at] = true;
    for (const std::size_t waiter : waiters[at]) {
      if (--missing[waiter] == 0) free.push_back(waiter);
    }
  }
  return may;
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::Ok:
      return "ok";
    case Verdict::Deadlock:
      return "deadlock";
    case Verdict::Mismatch:
      return "mismatch";
    case Verdict::Invalid:
      return "invalid";
  }
  return "ok";
}

WaitReport explain_stuck(const Program& program, const Progress& progress,
                         const std::vector<std::int64_t>& message_bytes) {
  WaitReport report;
  const StuckState state(program, progress, message_bytes);
  const auto& heads = state.heads();
  if (heads.empty()) return report;
  for (const auto& head : heads) report.stuck.push_back({head.rank, head.lane, head.instruction});

  // Whole orders may have ends that meet nobody where communicators are apart (§2.4).
  const bool apart = program.has_group_queues() && !program.joined.empty();
  Waits waits;
  bool running = false;  // a head that waits for nothing: the Program does not stand still
  std::vector<bool> never;
  std::vector<std::string> outside_waits;
  for (const auto& head : heads) {
    bool outside = false;
    waits.push_back(state.waits_of(head, outside));
    if (outside) {
      std::string reason =
          program.text(head.instruction) + " on " + rank_text(head.rank) +
          " waits for something that never comes: " + what_never_comes(program, head.instruction);
      if (apart) reason += " on its communicator (mixed batches have one of their own)";
      outside_waits.push_back(std::move(reason));
    }
    running |= waits.back().empty() && !outside;
    never.push_back(outside);
  }
  if (running) forget_credit_waits(program, waits);
  const std::vector<bool> may = may_go_on(waits, never);
  for (std::size_t at = 0; at < heads.size(); ++at) report.stuck[at].for_good = !may[at];
  const StuckState::Mismatch mismatch = state.reached_mismatch();
  report.mismatched_recv = mismatch.later;
  report.mismatched_send = mismatch.other;
  if (mismatch.later != kNoInstruction) {
    report.verdict = Verdict::Mismatch;
    return report;
  }
  const bool all_may = std::find(may.begin(), may.end(), false) == may.end();
  if (running && all_may) return report;
  const auto cycle = shortest_cycle(waits);
  if (running && cycle.empty()) return report;
  for (std::size_t k = 0; k < cycle.size(); ++k) {
    const std::size_t at = cycle[k], next = cycle[(k + 1) % cycle.size()];
    const auto wait = std::find_if(waits[at].begin(), waits[at].end(),
                                   [next](const auto& w) { return w.behind == next; });
    report.cycle.push_back({heads[at].rank, wait->waiting, wait->waits_for, heads[next].instruction,
                            heads[at].to_be_issued});
  }
  // Of a joined batch the end that waits is named.
  for (std::size_t k = 0; k < cycle.size(); ++k)
    report.cycle[k].behind = report.cycle[(k + 1) % cycle.size()].instruction;
  const bool hangs = !cycle.empty() || program.fragment || apart || !program.calls.empty();
  report.verdict = hangs ? Verdict::Deadlock : Verdict::Invalid;
  if (report.verdict == Verdict::Deadlock) report.cause = cause_among_computations(program);
  if (cycle.empty()) report.reasons = std::move(outside_waits);
  return report;
}

}  // namespace pipewright
