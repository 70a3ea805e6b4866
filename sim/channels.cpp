#include "sim/channels.hpp"

#include <algorithm>
#include <queue>

#include "core/program/credit.hpp"
#include "sim/links.hpp"

namespace pipewright::sim {
namespace {

class Channels {
 public:
  Channels(const Program& program, const CostTable& costs, const Durations& durations)
      : program_(program),
        durations_(durations),
        lanes_(lane_table(program)),
        links_(program, costs, durations),
        credit_(program, durations.route_bytes()) {
    const std::size_t n = program.code.size();
    start_.assign(n, kNotEnded);
    end_.assign(n, kNotEnded);
    moving_.assign(n, kNotEnded);
    state_.assign(n, 0);
    next_.assign(lanes_.lane_begin.begin(), lanes_.lane_begin.end() - 1);
    for (const auto& [id, input] : program.extra_inputs)
      lanes_wait_for_data_ |= !program.code[id].has(Instruction::kOnComputeLane);
    members_ready_.assign(program.collectives.size(), 0);
    if (!program.joined.empty()) batch_.assign(n, kNoBatch);
    for (const auto& [id, batch] : program.joined) batch_[id] = batch;
    if (program.policy.in_flight > 0 && program.policy.issue == Issue::Stream) {
      for (int r = 0; r < program.ranks(); ++r)
        windows_.push_back({.ends = issue_order(program, RankId(r))});
    }
  }

  Result run() {
    for (int r = 0; r < program_.ranks(); ++r) issue_at_start(r);
    for (int r = 0; r < program_.ranks(); ++r) try_compute(static_cast<std::size_t>(r));
    // An instant: everything that happens at now_, then the links, which need to know all who ask.
    settle();
    while (!events_.empty()) {
      now_ = events_.top().time;
      while (!events_.empty() && events_.top().time == now_) {
        const Event event = events_.top();
        events_.pop();
        if (code(event.id).in_collective()) {
          collective_ended(program_.collectives[code(event.id).route]);
        } else if (event.computation) {
          computation_ended(event.id);
        } else if (links_.on_event({event.time, event.id, event.stamp}, requested_)) {
          transfer_ended(event.id);
        }
      }
      settle();
    }
    return result();
  }

 private:
  // Bits of state_.
  static constexpr std::uint8_t kIssued = 1, kReady = 2, kLeft = 4, kArrived = 8, kMoving = 16,
                                kRunning = 32;

  struct Event {
    std::int64_t time;
    InstructionId id;
    std::uint32_t stamp;
    bool computation;
    bool operator<(const Event& o) const {
      return time != o.time ? time > o.time : id > o.id;
    }  // for a min-heap
  };

  const Instruction& code(InstructionId id) const { return program_.code[id]; }
  bool is(InstructionId id, std::uint8_t bits) const { return (state_[id] & bits) != 0; }
  std::size_t rank_of_lane(std::uint32_t lane) const {
    return static_cast<std::size_t>(lanes_.rank_of_lane[lane].value);
  }
  std::uint32_t compute_lane(std::size_t rank) const { return lanes_.rank_lane_begin[rank]; }

  /// The end of an instant: what meets without credit, in program order, then the links.
  void settle() {
    while (!without_credit_.empty()) {
      const auto first = std::min_element(without_credit_.begin(), without_credit_.end());
      const InstructionId send = *first;
      without_credit_.erase(first);
      if (!is(send, kLeft | kMoving)) begin_rendezvous(send);
    }
    links_.settle(now_, requested_);
    for (const Links::Event& e : requested_) events_.push({e.time, e.send, e.stamp, false});
    requested_.clear();
  }

  void issue_at_start(int rank) {
    const InstructionId begin = program_.rank_begin[static_cast<std::size_t>(rank)];
    const InstructionId stop = program_.rank_begin[static_cast<std::size_t>(rank) + 1];
    for (InstructionId id = begin; id < stop; ++id) {
      if (!code(id).has(Instruction::kAtStart)) continue;
      if (windows_.empty()) {
        issue(id);
      } else {
        ++windows_[static_cast<std::size_t>(rank)].reached;
      }
    }
    issue_run(begin, stop);
  }

  /// Issues the transfer ends from `id` up to the next instruction of the compute lane.
  void issue_run(InstructionId id, InstructionId stop) {
    if (!windows_.empty() && id < stop) {
      const auto rank = rank_of_lane(lanes_.lane_of[id]);
      for (; id < stop && !code(id).has(Instruction::kOnComputeLane); ++id)
        windows_[rank].reached += !code(id).has(Instruction::kAtStart);
      return fill_window(rank);
    }
    for (; id < stop && !code(id).has(Instruction::kOnComputeLane); ++id) issue(id);
  }

  /// Issues what the compute lane has reached, as far as there is room (§2.2).
  void fill_window(std::size_t rank) {
    Window& window = windows_[rank];
    const auto most = static_cast<std::size_t>(program_.policy.in_flight);
    while (window.issued < window.reached) {
      const InstructionId next = window.ends[window.issued];
      if (is_transfer(code(next).kind)) {
        const std::size_t k = window.in_flight.size();
        if (k >= most && end_[window.in_flight[k - most]] == kNotEnded) return;
        window.in_flight.push_back(next);
      }
      ++window.issued;
      issue(next);
    }
  }

  bool stands_at_window(std::size_t rank) const {
    return !windows_.empty() && windows_[rank].issued < windows_[rank].reached;
  }

  void issue(InstructionId id) {
    if (is(id, kIssued) || code(id).has(Instruction::kNotPassed)) return;
    state_[id] |= kIssued;
    try_lane(lanes_.lane_of[id]);
  }

  void try_compute(std::size_t rank) { try_lane(compute_lane(rank)); }

  /// Lets the head of the lane start if it can; goes on while heads end at once.
  void try_lane(std::uint32_t lane) {
    while (next_[lane] < lanes_.lane_begin[lane + 1]) {
      const std::uint32_t begin = next_[lane], stop = head_end(lane);
      // Of a joined batch each end that can be ready is.
      for (std::uint32_t place = begin; place < stop; ++place) {
        const InstructionId id = lanes_.instructions[place];
        if (!may_start(id, lane)) continue;
        const bool member = code(id).in_collective();
        if (!is_transfer(code(id).kind) && !member) return start_computation(id);
        state_[id] |= kReady;
        start_[id] = now_;
        if (member) return member_ready(id);
        is_send(code(id).kind) ? send_ready(id) : receive_ready(id);
      }
      if (next_[lane] == begin) return;
    }
  }

  bool may_start(InstructionId id, std::uint32_t lane) const {
    if ((state_[id] & (kReady | kRunning)) != 0 || !inputs_there(id)) return false;
    if (code(id).has(Instruction::kNotPassed)) return false;
    return code(id).has(Instruction::kOnComputeLane) ? !stands_at_window(rank_of_lane(lane))
                                                     : is(id, kIssued);
  }

  /// Behind the head of a lane that has one: one instruction, or those of a joined batch (§2.4).
  std::uint32_t head_end(std::uint32_t lane) const {
    std::uint32_t place = next_[lane];
    const std::uint32_t batch = batch_.empty() ? kNoBatch : batch_[lanes_.instructions[place]];
    if (batch == kNoBatch) return place + 1;
    while (place < lanes_.lane_begin[lane + 1] && batch_[lanes_.instructions[place]] == batch)
      ++place;
    return place;
  }

  /// The next head, if all of this one has ended.
  void pass_head(std::uint32_t lane) {
    if (batch_.empty()) {
      ++next_[lane];
      return;
    }
    const std::uint32_t stop = head_end(lane);
    for (std::uint32_t place = next_[lane]; place < stop; ++place) {
      if (end_[lanes_.instructions[place]] == kNotEnded) return;
    }
    next_[lane] = stop;
  }

  bool inputs_there(InstructionId id) const {
    const Instruction& in = code(id);
    const auto missing = [&](InstructionId input) {
      return input != kNoInstruction && end_[input] == kNotEnded;
    };
    if (!is_transfer(in.kind) && missing(in.link)) return false;
    if (in.has(Instruction::kExtraInput)) {
      for (const auto& [self, input] : program_.extra_inputs_of(id)) {
        if (missing(input)) return false;
      }
    }
    if (in.has(Instruction::kJoinsRun)) {
      const InstructionId begin = program_.rank_begin[rank_of_lane(lanes_.lane_of[id])];
      for (InstructionId member = id; member > begin && is_transfer(code(member - 1).kind);
           --member) {
        if (missing(member - 1)) return false;
      }
    }
    return true;
  }

  void start_computation(InstructionId id) {
    state_[id] |= kRunning;
    start_[id] = now_;
    moving_[id] = now_;
    events_.push({now_ + durations_.compute(id), id, 0, true});
  }

  void computation_ended(InstructionId id) {
    const std::uint32_t lane = lanes_.lane_of[id];
    const std::size_t rank = rank_of_lane(lane);
    end_[id] = now_;
    ++next_[lane];
    issue_run(id + 1, program_.rank_begin[rank + 1]);
    if (lanes_wait_for_data_) {
      for (std::uint32_t l = compute_lane(rank) + 1; l < lanes_.rank_lane_begin[rank + 1]; ++l)
        try_lane(l);
    }
    try_lane(lane);
  }

  /// The collective starts with the last of its members.
  void member_ready(InstructionId id) {
    const std::uint32_t c = code(id).route;
    const auto& members = program_.collectives[c].members;
    if (++members_ready_[c] < members.size()) return;
    for (const Collective::Member& member : members) {
      state_[member.instruction] |= kRunning;
      moving_[member.instruction] = now_;
    }
    events_.push({now_ + durations_.collective_ns()[c], members.front().instruction, 0, true});
  }

  void collective_ended(const Collective& collective) {
    for (const Collective::Member& member : collective.members) {
      end_[member.instruction] = now_;
      ++next_[lanes_.lane_of[member.instruction]];
    }
    for (const Collective::Member& member : collective.members) {
      const std::uint32_t lane = lanes_.lane_of[member.instruction];
      const std::size_t rank = rank_of_lane(lane);
      if (lane == compute_lane(rank)) {
        issue_run(member.instruction + 1, program_.rank_begin[rank + 1]);
      } else {
        try_lane(lane);
      }
      try_compute(rank);
    }
  }

  void send_ready(InstructionId id) {
    if (credit_.is_unlimited(id)) return leave(id);
    if (credit_.may_be_eager(id)) leave_in_order(credit_.account_of(id));
    const InstructionId receive = code(id).link;
    if (!is(id, kLeft) && receive != kNoInstruction && is(receive, kReady)) meet(id);
  }

  void receive_ready(InstructionId id) {
    const InstructionId send = code(id).link;
    if (send == kNoInstruction || code(id).has(Instruction::kMismatch)) return;
    if (is(send, kLeft)) {
      if (is(id, kArrived)) end_receive(id);
    } else if (is(send, kReady)) {
      meet(send);
    }
  }

  /// Both ends are ready. For want of credit they wait for the end of the instant, in case credit
  /// comes back; where the transfer takes no time that makes no difference to them, and what it
  /// sets free may.
  void meet(InstructionId send) {
    if (code(send).has(Instruction::kMismatch)) return;
    if (credit_.may_be_eager(send) && durations_.route_ns()[code(send).route] > 0) {
      without_credit_.push_back(send);
    } else {
      begin_rendezvous(send);
    }
  }

  /// Sends that have credit now, the first in program order first.
  void leave_in_order(Credit::AccountId account) {
    for (InstructionId send = credit_.next(account); send != kNoInstruction && is(send, kReady);
         send = credit_.next(account)) {
      leave(send);
      try_lane(lanes_.lane_of[send]);
    }
  }

  void begin_rendezvous(InstructionId send) {
    const InstructionId receive = code(send).link;
    state_[send] |= kMoving;
    state_[receive] |= kMoving;
    moving_[send] = moving_[receive] = now_;
    links_.request(send, now_, requested_);
    if (!credit_.may_be_eager(send)) return;
    credit_.pass(send);
    leave_in_order(credit_.account_of(send));
  }

  void leave(InstructionId send) {
    state_[send] |= kLeft;
    credit_.take(send);
    moving_[send] = now_;
    if (code(send).link != kNoInstruction) moving_[code(send).link] = now_;
    links_.request(send, now_, requested_);
    end_transfer_end(send);
  }

  void transfer_ended(InstructionId send) {
    const InstructionId receive = code(send).link;
    if (is(send, kLeft)) {
      if (receive == kNoInstruction) return;
      state_[receive] |= kArrived;
      if (is(receive, kReady) && !code(receive).has(Instruction::kMismatch)) end_receive(receive);
      return;
    }
    end_transfer_end(send);
    end_transfer_end(receive);
    try_lane(lanes_.lane_of[send]);
    try_lane(lanes_.lane_of[receive]);
  }

  /// An eager message has been taken: its credit goes back to the sender, whose next sends may
  /// leave.
  void end_receive(InstructionId receive) {
    end_transfer_end(receive);
    const InstructionId send = code(receive).link;
    credit_.give_back(send);
    if (!credit_.is_unlimited(send)) leave_in_order(credit_.account_of(send));
    try_lane(lanes_.lane_of[receive]);
  }

  void end_transfer_end(InstructionId id) {
    end_[id] = now_;
    const std::uint32_t lane = lanes_.lane_of[id];
    pass_head(lane);
    const std::size_t rank = rank_of_lane(lane);
    const std::uint32_t compute = compute_lane(rank);
    if (!windows_.empty()) fill_window(rank);
    if (lane != compute) try_lane(compute);
  }

  Result result() {
    Result result;
    result.finished =
        std::all_of(end_.begin(), end_.end(), [](std::int64_t end) { return end != kNotEnded; });
    for (const std::int64_t end : end_)
      result.timeline.makespan_ns = std::max(result.timeline.makespan_ns, end);
    if (!result.finished) {
      for (InstructionId id = 0; id < program_.code.size(); ++id) {
        result.progress.ended.push_back(end_[id] != kNotEnded);
        result.progress.left.push_back(is(id, kLeft));
      }
    }
    result.timeline.start = std::move(start_);
    result.timeline.end = std::move(end_);
    result.timeline.moving = std::move(moving_);
    return result;
  }

  const Program& program_;
  const Durations& durations_;
  LaneTable lanes_;
  Links links_;
  Credit credit_;
  std::vector<std::int64_t> start_, end_, moving_;
  std::vector<std::uint8_t> state_;
  std::vector<std::uint32_t> next_;   // by lane: place of its head in lanes_.instructions
  std::vector<std::uint32_t> batch_;  // by instruction: Program::batch_of(); empty: none is joined
  std::priority_queue<Event> events_;
  std::vector<Links::Event> requested_;
  std::vector<std::size_t> members_ready_;     // by collective
  std::vector<InstructionId> without_credit_;  // sends whose RECV is ready, at this instant
  /// Of a rank, where the policy limits what is in flight.
  struct Window {
    std::vector<InstructionId> ends;       // and members, in the order of issue
    std::vector<InstructionId> in_flight;  // the transfer ends among those issued so far
    std::size_t reached = 0, issued = 0;
  };
  std::vector<Window> windows_;  // by rank
  std::int64_t now_ = 0;
  bool lanes_wait_for_data_ = false;
};

}  // namespace

Result run_channels(const Program& program, const CostTable& costs, const Durations& durations) {
  return Channels(program, costs, durations).run();
}

}  // namespace pipewright::sim
