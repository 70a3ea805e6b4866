#include "exec/transports/local/exchange.hpp"

#include <algorithm>
#include <utility>

namespace pipewright::exec::local {

Exchange::Exchange(const Program& program, MessageCosts costs)
    : program_(program),
      costs_(std::move(costs)),
      credit_(program, costs_.bytes),
      ends_(program, 0, static_cast<InstructionId>(program.code.size())) {
  reset();
}

void Exchange::reset() {
  ends_.reset();
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
  ends_.issue(end, std::move(data));
  drain();
}

void Exchange::provide(InstructionId send, PayloadPtr data, std::int64_t now) {
  now_ = std::max(now_, now);
  ends_.provide(send, std::move(data));
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
    } else if (ends_.is(event.send, kLeft)) {
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
  std::erase_if(meetings_, [&](InstructionId send) { return ends_.has_started(send); });
  if (meetings_.empty()) return false;
  // One at a time, by rank and lane: it may let a later send of its edge have credit.
  const auto first = std::min_element(
      meetings_.begin(), meetings_.end(),
      [&](InstructionId a, InstructionId b) { return ends_.lane_of(a) < ends_.lane_of(b); });
  begin_rendezvous(*first);
  drain();
  return true;
}

std::vector<InstructionId> Exchange::take_just_ended() { return std::exchange(just_ended_, {}); }

// --- Queues ---

void Exchange::drain() {
  // Credit before everything else; a meeting without credit after everything else.
  while (true) {
    if (!accounts_to_serve_.empty()) {
      const Credit::AccountId account = accounts_to_serve_.back();
      accounts_to_serve_.pop_back();
      serve(account);
    } else if (const InstructionId id = ends_.next_ready(now_); id != kNoInstruction) {
      become_ready(id);
    } else if (!quick_meetings_.empty()) {
      const InstructionId send = quick_meetings_.back();
      quick_meetings_.pop_back();
      if (!ends_.has_started(send)) begin_rendezvous(send);
    } else {
      return;
    }
  }
}

void Exchange::end(InstructionId id) {
  ends_.end(id, now_);
  just_ended_.push_back(id);
}

// --- Transfers ---

void Exchange::become_ready(InstructionId id) {
  if (code(id).in_collective()) return member_ready(id);
  if (is_send(code(id).kind)) {
    if (credit_.is_unlimited(id)) return leave(id);
    if (credit_.may_be_eager(id)) accounts_to_serve_.push_back(credit_.account_of(id));
    return try_to_meet(id);
  }
  const InstructionId send = ends_.true_partner(id);
  if (send == kNoInstruction) return;
  if (ends_.is(send, kLeft)) {
    if (ends_.is(send, kArrived)) end_receive(id);
  } else if (ends_.is(send, kReady)) {
    try_to_meet(send);
  }
}

void Exchange::try_to_meet(InstructionId send) {
  const InstructionId recv = ends_.true_partner(send);
  if (recv == kNoInstruction || !ends_.is(recv, kReady)) return;
  if (!credit_.may_be_eager(send)) return begin_rendezvous(send);
  (transfer_ns(send) == 0 ? quick_meetings_ : meetings_).push_back(send);
}

void Exchange::serve(Credit::AccountId account) {
  const InstructionId send = credit_.next(account);
  if (send == kNoInstruction || !ends_.is(send, kReady)) return;
  leave(send);
  accounts_to_serve_.push_back(account);
}

void Exchange::leave(InstructionId send) {
  ends_.mark(send, kLeft);
  credit_.take(send);
  ends_.moving(send) = now_;
  end(send);
  const InstructionId recv = code(send).link;
  if (recv == kNoInstruction) return;
  ends_.moving(recv) = now_;
  if (transfer_ns(send) == 0) return arrive(send);
  events_.push({now_ + transfer_ns(send), send});
}

void Exchange::arrive(InstructionId send) {
  ends_.mark(send, kArrived);
  const InstructionId recv = ends_.true_partner(send);
  if (recv != kNoInstruction && ends_.is(recv, kReady)) end_receive(recv);
}

void Exchange::end_receive(InstructionId recv) {
  const InstructionId send = code(recv).link;
  ends_.payload(recv) = std::move(ends_.payload(send));
  end(recv);
  credit_.give_back(send);
  if (!credit_.is_unlimited(send)) accounts_to_serve_.push_back(credit_.account_of(send));
}

void Exchange::begin_rendezvous(InstructionId send) {
  const InstructionId recv = code(send).link;
  ends_.mark(send, kMoving);
  ends_.mark(recv, kMoving);
  ends_.moving(send) = ends_.moving(recv) = now_;
  if (credit_.may_be_eager(send)) {
    credit_.pass(send);
    accounts_to_serve_.push_back(credit_.account_of(send));
  }
  if (transfer_ns(send) == 0) return end_rendezvous(send);
  events_.push({now_ + transfer_ns(send), send});
}

void Exchange::end_rendezvous(InstructionId send) {
  const InstructionId recv = code(send).link;
  ends_.payload(recv) = std::move(ends_.payload(send));
  end(send);
  end(recv);
}

// --- Collectives ---

/// The last of its members starts it.
void Exchange::member_ready(InstructionId id) {
  const std::uint32_t c = code(id).route;
  const Collective& collective = program_.collectives[c];
  if (++members_ready_[c] < collective.members.size()) return;
  for (const Collective::Member& member : collective.members)
    ends_.moving(member.instruction) = now_;
  const std::int64_t takes = costs_.collective_ns.empty() ? 0 : costs_.collective_ns[c];
  if (takes == 0) return end_collective(collective);
  events_.push({now_ + takes, collective.members.front().instruction});
}

void Exchange::end_collective(const Collective& collective) {
  for (const Collective::Member& member : collective.members) end(member.instruction);
}

}  // namespace pipewright::exec::local
