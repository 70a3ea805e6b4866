#include "sim/queues.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/large_pages.hpp"
#include "core/program/credit.hpp"
#include "core/program/queue_key.hpp"
#include "core/program/start_rules.hpp"
#include "sim/alone_on_links.hpp"
#include "sim/awake_ranks.hpp"
#include "sim/first_row.hpp"

namespace pipewright::sim {
namespace {

constexpr std::uint32_t kTurnsBetweenPulses = 1U << 14;  // a rank takes a few steps a turn
constexpr std::uint32_t kNoLane = 0xffffffff;  // on the compute lane, or alone in its queue

bool chooses(const Program& program, const CostTable& costs, const Durations& durations) {
  for (std::size_t i = 0; i < program.routes.size(); ++i) {
    if (leave_by_policy(program.policy, program.routes[i].send_kind, durations.route_bytes()[i]) ==
        Leave::Counted)
      return true;
  }
  return costs.shares_by_flow() || !program.calls.empty() || !program.joined.empty() ||
         !program.host_stands.empty() ||
         (program.policy.issue == Issue::Stream && program.policy.in_flight > 0);
}

class Queues {
 public:
  /// `route_ns`: what a transfer takes on each route.
  Queues(const Program& program, const Durations& durations, std::span<const std::int64_t> route_ns)
      : program_(program),
        durations_(durations),
        members_ready_(program.collectives.size(), 0),
        awake_(static_cast<std::size_t>(program.ranks())) {
    for (auto* const times : {&timeline_.start, &timeline_.end, &timeline_.moving})
      assign_in_large_pages(*times, program.code.size(), kNotEnded);
    start_ = timeline_.start.data();
    end_ = timeline_.end.data();
    moving_ = timeline_.moving.data();
    for (std::size_t r = 0; r + 1 < program.rank_begin.size(); ++r) {
      const InstructionId begin = program.rank_begin[r];
      ranks_.push_back({.begin = begin, .stop = program.rank_begin[r + 1]});
      ranks_.back().pair = first_row(program.pairs, begin);
      ranks_.back().collectives = add_lane();
    }
    lay_routes(route_ns);
  }

  /// Whether all of it ends.
  bool run(const Pulse& pulse) {
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      for (InstructionId id = ranks_[r].begin; id < ranks_[r].stop && issues_at_start(); ++id) {
        const Instruction& in = program_.code[id];
        if (in.has(Instruction::kAtStart)) issue(id, in, 0, r);
      }
    }
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) awake_.push(r);
    for (std::uint32_t turn = 1; !awake_.empty(); ++turn) {
      if (turn % kTurnsBetweenPulses == 0 && pulse) pulse();
      advance(awake_.pop());
    }
    return ended_ == program_.code.size();
  }

  Timeline take_timeline() {
    for (const std::int64_t end : timeline_.end)
      timeline_.makespan_ns = std::max(timeline_.makespan_ns, end);
    return std::move(timeline_);
  }

 private:
  /// An end that has been issued.
  struct Issued {
    InstructionId id;
    std::int64_t at;
  };
  struct Rank {
    InstructionId begin, stop, at = begin;      // of its list; where it is
    InstructionId blocked_on = kNoInstruction;  // what the compute lane waits for
    std::int64_t clock = 0;                     // of the compute lane
    std::size_t pair = 0;                       // a row of Program::pairs, at or before `at`'s
    std::uint32_t collectives = kNoLane;        // its collective lane
    std::vector<Issued> without_data = {};      // ends at the heads of their queues
  };
  struct Lane {
    std::vector<Issued> waiting;  // from `first` on
    std::size_t first = 0;
    std::int64_t clock = 0;  // what was before has ended then
  };
  struct Side {
    std::uint32_t rank, lane;
  };
  struct Hop {
    std::int64_t ns;
    Side source, destination;
    bool at_once;  // unless the SEND says otherwise
  };

  std::uint32_t add_lane() {
    lanes_.emplace_back();
    return static_cast<std::uint32_t>(lanes_.size() - 1);
  }

  bool issues_at_start() const {
    return program_.policy.issue == Issue::Stream && program_.policy.post == Post::AtStart;
  }

  void lay_routes(std::span<const std::int64_t> route_ns) {
    const Channel channel = queue_channel(program_.policy);
    const bool alone = channel == Channel::Tag || program_.policy.issue == Issue::Inline;
    std::map<std::pair<std::int64_t, std::int64_t>, std::uint32_t> lanes;  // by rank and queue
    const auto lane_of = [&](const Route& route, bool sends) {
      if (alone) return kNoLane;
      const auto [lane, is_new] = lanes.try_emplace(
          {(sends ? route.source : route.destination).value, queue_key(route, sends, channel)});
      if (is_new) lane->second = add_lane();
      return lane->second;
    };
    for (std::size_t i = 0; i < program_.routes.size(); ++i) {
      const Route& route = program_.routes[i];
      const Leave leave =
          leave_by_policy(program_.policy, route.send_kind, durations_.route_bytes()[i]);
      hops_.push_back({route_ns[i],
                       {static_cast<std::uint32_t>(route.source.value), lane_of(route, true)},
                       {static_cast<std::uint32_t>(route.destination.value), lane_of(route, false)},
                       leave == Leave::Unlimited});
    }
  }

  // --- The compute lane ---

  void advance(std::uint32_t index) {
    Rank& rank = ranks_[index];
    for (; rank.at < rank.stop; ++rank.at) {
      const Instruction& in = program_.code[rank.at];
      if (in.has(Instruction::kOnComputeLane)) {
        if (!pass(rank, in)) break;
      } else if (!in.has(Instruction::kAtStart)) {
        issue(rank.at, in, rank.clock, index);
      }
    }
    // Other ranks come first; by the time this one goes on, what it reads is in the cache.
    __builtin_prefetch(program_.code.data() + rank.at + 4);
    for (const std::int64_t* const times : {start_, end_, moving_})
      __builtin_prefetch(times + rank.at + 8, 1);
    look_at_data(index);
  }

  /// False: it waits for something.
  bool pass(Rank& rank, const Instruction& in) {
    const InstructionId id = rank.at;
    if (start_[id] == kNotEnded) {
      std::int64_t start = rank.clock;
      rank.blocked_on = missing_input(id, in, rank.begin, start);
      if (rank.blocked_on != kNoInstruction) return false;
      if (!in.is_communication()) {
        start_[id] = moving_[id] = start;
        rank.clock = end_[id] = start + duration(rank, in);
        ++ended_;
        return true;
      }
      ready(id, in, start);
      try_lanes();
    }
    rank.blocked_on = end_[id] == kNotEnded ? id : kNoInstruction;
    if (rank.blocked_on != kNoInstruction) return false;
    rank.clock = end_[id];
    return true;
  }

  std::int64_t duration(Rank& rank, const Instruction& in) {
    if (in.kind == ActionKind::Opt) return durations_.compute(rank.at);
    if (!in.has(Instruction::kPair)) return durations_.plain(rank.at, in);
    while (program_.pairs[rank.pair].first < rank.at) ++rank.pair;
    return durations_.pair(rank.at, in, program_.pairs[rank.pair].second);
  }

  /// The first one that has not ended; kNoInstruction: none, and `start` is when all have.
  InstructionId missing_input(InstructionId id, const Instruction& in, InstructionId begin,
                              std::int64_t& start) const {
    InstructionId missing = kNoInstruction;
    const auto take = [&](InstructionId input) {
      if (end_[input] == kNotEnded) missing = input;
      start = std::max(start, end_[input]);
      return missing == kNoInstruction;
    };
    if ((in.flags & (Instruction::kExtraInput | Instruction::kJoinsRun)) != 0) {
      for_each_input(program_, id, begin, take);
    } else if (in.link != kNoInstruction && !is_transfer(in.kind)) {
      take(in.link);
    }
    return missing;
  }

  // --- Queues ---

  std::uint32_t lane_of(const Instruction& in, std::uint32_t rank) const {
    if (in.in_collective()) return ranks_[rank].collectives;
    const Hop& hop = hops_[in.route];
    return (is_send(in.kind) ? hop.source : hop.destination).lane;
  }

  void issue(InstructionId id, const Instruction& in, std::int64_t now, std::uint32_t rank) {
    const std::uint32_t at = lane_of(in, rank);
    if (at == kNoLane) {
      stand(id, in, now, rank);
    } else {
      Lane& lane = lanes_[at];
      lane.waiting.push_back({id, now});
      if (lane.waiting.size() > lane.first + 1) return;
      stand(id, in, std::max(now, lane.clock), rank);
    }
    try_lanes();
  }

  /// At the head of its queue; what it carries may be made later.
  void stand(InstructionId id, const Instruction& in, std::int64_t now, std::uint32_t rank) {
    if (in.has(Instruction::kExtraInput)) {
      const std::int64_t came = now;
      if (missing_input(id, in, ranks_[rank].begin, now) != kNoInstruction)
        return ranks_[rank].without_data.push_back({id, came});
    }
    ready(id, in, now);
  }

  /// Its rank has computed something.
  void look_at_data(std::uint32_t rank) {
    if (ranks_[rank].without_data.empty()) return;
    for (const Issued& head : std::exchange(ranks_[rank].without_data, {}))
      stand(head.id, program_.code[head.id], head.at, rank);
    try_lanes();
  }

  /// What has ended made room at the heads of these.
  void try_lanes() {
    while (!lanes_to_try_.empty()) {
      const auto [at, rank] = lanes_to_try_.back();
      lanes_to_try_.pop_back();
      const Lane& lane = lanes_[at];
      if (lane.first == lane.waiting.size()) continue;
      const Issued head = lane.waiting[lane.first];
      stand(head.id, program_.code[head.id], std::max(head.at, lane.clock), rank);
    }
  }

  void leave_lane(Side side, std::int64_t now) {
    if (side.lane == kNoLane) return;
    Lane& lane = lanes_[side.lane];
    lane.clock = now;
    if (++lane.first == lane.waiting.size()) {
      lane.waiting.clear();
      lane.first = 0;
    } else {
      lanes_to_try_.emplace_back(side.lane, side.rank);
    }
  }

  // --- Transfers and collectives ---

  void ready(InstructionId id, const Instruction& in, std::int64_t now) {
    start_[id] = now;
    if (in.in_collective()) return member_ready(in.route);
    if (in.link == kNoInstruction && is_recv(in.kind)) return;
    const bool sends = is_send(in.kind);
    const InstructionId send = sends ? id : in.link, receive = sends ? in.link : id;
    const Hop& hop = hops_[program_.code[send].route];
    const bool at_once = hop.at_once && !program_.code[send].has(Instruction::kRendezvous);
    if (sends && at_once) {
      moving_[id] = now;
      if (receive != kNoInstruction) moving_[receive] = now;
      end(id, hop.source, now);
    }
    if (receive == kNoInstruction || in.has(Instruction::kMismatch)) return;
    if (start_[send] == kNotEnded || start_[receive] == kNotEnded) return;
    if (at_once) {
      end(receive, hop.destination, std::max(start_[receive], moving_[receive] + hop.ns));
      return;
    }
    const std::int64_t begin = std::max(start_[send], start_[receive]);
    moving_[send] = moving_[receive] = begin;
    end(send, hop.source, begin + hop.ns);
    end(receive, hop.destination, begin + hop.ns);
  }

  void member_ready(std::uint32_t index) {
    const Collective& all = program_.collectives[index];
    if (++members_ready_[index] < all.members.size() || !all.can_start()) return;
    std::int64_t begin = 0;
    for (const Collective::Member& member : all.members)
      begin = std::max(begin, start_[member.instruction]);
    for (const Collective::Member& member : all.members) {
      const auto rank = static_cast<std::uint32_t>(member.rank.value);
      moving_[member.instruction] = begin;
      const bool queued = !program_.code[member.instruction].has(Instruction::kOnComputeLane);
      end(member.instruction, {rank, queued ? ranks_[rank].collectives : kNoLane},
          begin + durations_.collective_ns()[index]);
    }
  }

  void end(InstructionId id, Side side, std::int64_t now) {
    end_[id] = now;
    ++ended_;
    leave_lane(side, now);
    Rank& rank = ranks_[side.rank];
    if (rank.blocked_on != id) return;
    rank.blocked_on = kNoInstruction;
    awake_.push(side.rank);
  }

  const Program& program_;
  const Durations& durations_;
  Timeline timeline_;
  std::int64_t *start_ = nullptr, *end_ = nullptr, *moving_ = nullptr;  // the timeline's
  std::size_t ended_ = 0;
  std::vector<Rank> ranks_;
  std::vector<Lane> lanes_;
  std::vector<Hop> hops_;                                              // by route
  std::vector<std::size_t> members_ready_;                             // by collective
  std::vector<std::pair<std::uint32_t, std::uint32_t>> lanes_to_try_;  // with their ranks
  AwakeRanks awake_;
};

}  // namespace

std::optional<Timeline> run_queues(const Program& program, const CostTable& costs,
                                   const Durations& durations, const Pulse& pulse) {
  if (chooses(program, costs, durations)) return std::nullopt;
  const bool shares = costs.has_shared_links();
  std::vector<std::int64_t> alone;
  if (shares) alone = alone_ns(program, costs, durations);
  const std::span<const std::int64_t> route_ns = shares ? alone : durations.route_ns();
  Queues queues(program, durations, route_ns);
  if (!queues.run(pulse)) return std::nullopt;
  Timeline timeline = queues.take_timeline();
  if (shares && !keep_apart(program, costs, route_ns, timeline)) return std::nullopt;
  return timeline;
}

}  // namespace pipewright::sim
