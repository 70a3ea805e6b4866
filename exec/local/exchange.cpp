#include "exec/local/exchange.hpp"

#include <algorithm>
#include <utility>

namespace pipewright::exec::local {

Exchange::Exchange(const Program& program, MessageCosts costs)
    : program_(program),
      costs_(std::move(costs)),
      lanes_(lane_table(program)),
      credit_(program, costs_.bytes),
      ended_(std::make_unique<std::atomic<std::uint8_t>[]>(program.code.size())) {
  reset();
}

void Exchange::reset() {
  const std::size_t n = program_.code.size();
  for (std::size_t id = 0; id < n; ++id) ended_[id].store(0, std::memory_order_relaxed);
  state_.assign(n, 0);
  payload_.clear();
  payload_.resize(n);
  start_.assign(n, kNotEnded);
  moving_.assign(n, kNotEnded);
  end_.assign(n, kNotEnded);
  next_.assign(lanes_.lane_begin.begin(), lanes_.lane_begin.end() - 1);
  members_ready_.assign(program_.collectives.size(), 0);
  events_ = {};
  just_ended_.clear();
  meetings_.clear();
  credit_.reset();
  now_ = 0;
}

// --- From outside ---

void Exchange::issue(InstructionId end, PayloadPtr data, std::int64_t now) {
  now_ = std::max(now_, now);
  state_[end] |= kIssued;
  if (data != nullptr || !is_send(code(end).kind)) state_[end] |= kData;
  payload_[end] = std::move(data);
  look_at(end);
  drain();
}

void Exchange::provide(InstructionId send, PayloadPtr data, std::int64_t now) {
  now_ = std::max(now_, now);
  state_[send] |= kData;
  payload_[send] = std::move(data);
  look_at(send);
  drain();
}

std::optional<std::int64_t> Exchange::next_event() const {
  if (events_.empty()) return std::nullopt;
  return events_.top().time;
}

void Exchange::run_events(std::int64_t until) {
  while (!events_.empty() && events_.top().time <= until) {
    const Event event = events_.top();
    events_.pop();
    now_ = std::max(now_, event.time);
    if (code(event.send).in_collective()) {
      end_collective(program_.collectives[code(event.send).route]);
    } else if (is(event.send, kLeft)) {
      arrive(event.send);
    } else {
      end_rendezvous(event.send);
    }
    drain();
  }
  now_ = std::max(now_, until);
}

bool Exchange::settle(std::int64_t now) {
  now_ = std::max(now_, now);
  std::erase_if(meetings_, [&](InstructionId send) { return has_started(send); });
  if (meetings_.empty()) return false;
  // One at a time, by rank and lane: it may let a later send of its edge have credit.
  const auto first = std::min_element(
      meetings_.begin(), meetings_.end(),
      [&](InstructionId a, InstructionId b) { return lanes_.lane_of[a] < lanes_.lane_of[b]; });
  begin_rendezvous(*first);
  drain();
  return true;
}

std::vector<InstructionId> Exchange::take_just_ended() { return std::exchange(just_ended_, {}); }

void Exchange::report(Timeline& timeline, Progress& progress) const {
  for (InstructionId id = 0; id < program_.code.size(); ++id) {
    if (!code(id).is_communication()) continue;
    timeline.start[id] = start_[id];
    timeline.moving[id] = moving_[id];
    timeline.end[id] = end_[id];
    progress.ended[id] = end_[id] != kNotEnded;
    progress.left[id] = is(id, kLeft);
  }
}

// --- Queues ---

void Exchange::look_at(InstructionId id) {
  if (!code(id).has(Instruction::kOnComputeLane)) {
    lanes_to_try_.push_back(lanes_.lane_of[id]);
  } else if (is(id, kIssued | kData)) {
    become_ready(id);  // the rank issues it when its compute lane stands there
  }
}

void Exchange::drain() {
  // Credit before everything else; a meeting without credit after everything else.
  while (true) {
    if (!accounts_to_serve_.empty()) {
      const Credit::AccountId account = accounts_to_serve_.back();
      accounts_to_serve_.pop_back();
      serve(account);
    } else if (!lanes_to_try_.empty()) {
      const std::uint32_t lane = lanes_to_try_.back();
      lanes_to_try_.pop_back();
      try_lane(lane);
    } else if (!quick_meetings_.empty()) {
      const InstructionId send = quick_meetings_.back();
      quick_meetings_.pop_back();
      if (!has_started(send)) begin_rendezvous(send);
    } else {
      return;
    }
  }
}

void Exchange::try_lane(std::uint32_t lane) {
  if (next_[lane] == lanes_.lane_begin[lane + 1]) return;
  const InstructionId head = lanes_.instructions[next_[lane]];
  if (is(head, kIssued | kData) && !is(head, kReady)) become_ready(head);
}

void Exchange::end(InstructionId id) {
  end_[id] = now_;
  ended_[id].store(1, std::memory_order_release);
  just_ended_.push_back(id);
  if (code(id).has(Instruction::kOnComputeLane)) return;
  const std::uint32_t lane = lanes_.lane_of[id];
  ++next_[lane];
  lanes_to_try_.push_back(lane);
}

// --- Transfers ---

void Exchange::become_ready(InstructionId id) {
  state_[id] |= kReady;
  start_[id] = now_;
  if (code(id).in_collective()) return member_ready(id);
  if (is_send(code(id).kind)) {
    if (credit_.is_unlimited(id)) return leave(id);
    if (credit_.may_be_eager(id)) accounts_to_serve_.push_back(credit_.account_of(id));
    return try_to_meet(id);
  }
  const InstructionId send = true_partner(id);
  if (send == kNoInstruction) return;
  if (is(send, kLeft)) {
    if (is(send, kArrived)) end_receive(id);
  } else if (is(send, kReady)) {
    try_to_meet(send);
  }
}

void Exchange::try_to_meet(InstructionId send) {
  const InstructionId recv = true_partner(send);
  if (recv == kNoInstruction || !is(recv, kReady)) return;
  if (!credit_.may_be_eager(send)) return begin_rendezvous(send);
  (transfer_ns(send) == 0 ? quick_meetings_ : meetings_).push_back(send);
}

void Exchange::serve(Credit::AccountId account) {
  const InstructionId send = credit_.next(account);
  if (send == kNoInstruction || !is(send, kReady)) return;
  leave(send);
  accounts_to_serve_.push_back(account);
}

void Exchange::leave(InstructionId send) {
  state_[send] |= kLeft;
  credit_.take(send);
  moving_[send] = now_;
  end(send);
  const InstructionId recv = code(send).link;
  if (recv == kNoInstruction) return;
  moving_[recv] = now_;
  if (transfer_ns(send) == 0) return arrive(send);
  events_.push({now_ + transfer_ns(send), send});
}

void Exchange::arrive(InstructionId send) {
  state_[send] |= kArrived;
  const InstructionId recv = true_partner(send);
  if (recv != kNoInstruction && is(recv, kReady)) end_receive(recv);
}

void Exchange::end_receive(InstructionId recv) {
  const InstructionId send = code(recv).link;
  payload_[recv] = std::move(payload_[send]);
  end(recv);
  credit_.give_back(send);
  if (!credit_.is_unlimited(send)) accounts_to_serve_.push_back(credit_.account_of(send));
}

void Exchange::begin_rendezvous(InstructionId send) {
  const InstructionId recv = code(send).link;
  state_[send] |= kMoving;
  state_[recv] |= kMoving;
  moving_[send] = moving_[recv] = now_;
  if (credit_.may_be_eager(send)) {
    credit_.pass(send);
    accounts_to_serve_.push_back(credit_.account_of(send));
  }
  if (transfer_ns(send) == 0) return end_rendezvous(send);
  events_.push({now_ + transfer_ns(send), send});
}

void Exchange::end_rendezvous(InstructionId send) {
  const InstructionId recv = code(send).link;
  payload_[recv] = std::move(payload_[send]);
  end(send);
  end(recv);
}

// --- Collectives ---

/// The last of its members starts it.
void Exchange::member_ready(InstructionId id) {
  const std::uint32_t c = code(id).route;
  const Collective& collective = program_.collectives[c];
  if (++members_ready_[c] < collective.members.size()) return;
  for (const Collective::Member& member : collective.members) moving_[member.instruction] = now_;
  const std::int64_t takes = costs_.collective_ns.empty() ? 0 : costs_.collective_ns[c];
  if (takes == 0) return end_collective(collective);
  events_.push({now_ + takes, collective.members.front().instruction});
}

void Exchange::end_collective(const Collective& collective) {
  for (const Collective::Member& member : collective.members) end(member.instruction);
}

}  // namespace pipewright::exec::local
