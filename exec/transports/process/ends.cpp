#include "exec/transports/process/ends.hpp"

#include <algorithm>

#include "core/base/error.hpp"

namespace pipewright::exec::mpi {

Ends::Ends(const Program& program, RankId rank, local::MessageCosts costs)
    : program_(program),
      begin_(program.rank_begin[static_cast<std::size_t>(rank.value)]),
      end_(program.rank_begin[static_cast<std::size_t>(rank.value) + 1]),
      costs_(std::move(costs)),
      credit_(program, costs_.bytes),
      ends_(program, begin_, end_) {
  reset();
}

void Ends::reset() {
  ends_.reset();
  members_ready_.assign(program_.collectives.size(), 0);
  events_ = {};
  outgoing_.clear();
  meetings_.clear();
  credit_.reset();
  now_ = 0;
}

// --- What the rank does ---

void Ends::issue(InstructionId end, PayloadPtr data, std::int64_t now) {
  now_ = std::max(now_, now);
  ends_.issue(end, std::move(data));
  drain();
}

void Ends::provide(InstructionId send, PayloadPtr data, std::int64_t now) {
  now_ = std::max(now_, now);
  ends_.provide(send, std::move(data));
  drain();
}

// --- What arrives ---

void Ends::on_ready(InstructionId send, std::int64_t now) {
  now_ = std::max(now_, now);
  ends_.mark(send, kPeerReady);
  if (ends_.has_started(send) || !ends_.is(send, kReady)) return;
  credit_.may_be_eager(send) ? meetings_.push_back(send) : begin_rendezvous(send);
  drain();
}

void Ends::on_data(InstructionId send, PayloadPtr data, bool took_credit, std::int64_t moving_ns,
                   std::int64_t now) {
  now_ = std::max(now_, now);
  const InstructionId recv = code(send).link;
  PIPEWRIGHT_ASSERT(recv != kNoInstruction && ends_.holds(recv),
                    "a message came to a rank that does not receive it");
  ends_.payload(recv) = std::move(data);
  ends_.moving(recv) = moving_ns;
  if (took_credit) ends_.mark(recv, kTookCredit);
  const std::int64_t due = moving_ns + transfer_ns(send);
  if (transfer_ns(send) > 0 && due > now_) return events_.push({due, recv});
  arrive(recv);
  drain();
}

void Ends::on_credit(InstructionId send, std::int64_t now) {
  now_ = std::max(now_, now);
  credit_.give_back(send);
  accounts_to_serve_.push_back(credit_.account_of(send));
  drain();
}

void Ends::on_member(InstructionId member, std::int64_t now) {
  now_ = std::max(now_, now);
  member_ready(member);
  drain();
}

void Ends::on_sent(InstructionId send, std::int64_t now) {
  now_ = std::max(now_, now);
  const std::int64_t due = ends_.moving(send) + transfer_ns(send);
  if (transfer_ns(send) > 0 && due > now_) return events_.push({due, send});
  end(send);
  drain();
}

void Ends::run_events(std::int64_t now) {
  while (!events_.empty() && events_.top().time <= now) {
    const Event event = events_.top();
    events_.pop();
    now_ = std::max(now_, event.time);
    is_recv(code(event.id).kind) ? arrive(event.id) : end(event.id);
    drain();
  }
  now_ = std::max(now_, now);
}

// --- Queues ---

void Ends::drain() {
  // Credit before everything else; a meeting without credit after everything else.
  while (true) {
    if (!accounts_to_serve_.empty()) {
      const Credit::AccountId account = accounts_to_serve_.back();
      accounts_to_serve_.pop_back();
      serve(account);
    } else if (const InstructionId id = ends_.next_ready(now_); id != kNoInstruction) {
      become_ready(id);
    } else if (!meetings_.empty()) {
      meet_without_credit();
    } else {
      return;
    }
  }
}

void Ends::end(InstructionId id) {
  ends_.end(id, now_);
  ++ended_count_;
}

// --- Transfers ---

void Ends::become_ready(InstructionId id) {
  if (code(id).in_collective()) {
    for (const auto& other : program_.collectives[code(id).route].members) {
      if (other.instruction != id) tell(FrameKind::Member, id, other.rank);
    }
    return member_ready(id);
  }
  if (is_send(code(id).kind)) {
    if (credit_.is_unlimited(id)) return leave(id);
    if (credit_.may_be_eager(id)) accounts_to_serve_.push_back(credit_.account_of(id));
    if (!ends_.is(id, kPeerReady)) return;
    return credit_.may_be_eager(id) ? meetings_.push_back(id) : begin_rendezvous(id);
  }
  const InstructionId send = ends_.true_partner(id);
  if (send == kNoInstruction) return;
  if (ends_.is(id, kArrived)) return end_receive(id);
  if (!credit_.is_unlimited(send)) tell(FrameKind::Ready, send, program_.rank_of(send));
}

void Ends::serve(Credit::AccountId account) {
  const InstructionId send = credit_.next(account);
  if (send == kNoInstruction || !ends_.is(send, kReady)) return;
  leave(send);
  accounts_to_serve_.push_back(account);
}

void Ends::leave(InstructionId send) {
  ends_.mark(send, kLeft);
  credit_.take(send);
  ends_.moving(send) = now_;
  if (code(send).link != kNoInstruction) {
    tell(FrameKind::Data, send, program_.rank_of(code(send).link));
    outgoing_.back().took_credit = !credit_.is_unlimited(send);
  }
  end(send);
}

void Ends::meet_without_credit() {
  std::erase_if(meetings_, [&](InstructionId send) { return ends_.has_started(send); });
  if (meetings_.empty()) return;
  // One at a time, by lane: it may let a later send of its edge have credit.
  const auto first = std::min_element(
      meetings_.begin(), meetings_.end(),
      [&](InstructionId a, InstructionId b) { return ends_.lane_of(a) < ends_.lane_of(b); });
  begin_rendezvous(*first);
}

void Ends::begin_rendezvous(InstructionId send) {
  ends_.mark(send, kMoving);
  ends_.moving(send) = now_;
  tell(FrameKind::Data, send, program_.rank_of(code(send).link));
  outgoing_.back().ends_when_sent = true;
  if (!credit_.may_be_eager(send)) return;
  credit_.pass(send);
  accounts_to_serve_.push_back(credit_.account_of(send));
}

void Ends::arrive(InstructionId recv) {
  ends_.mark(recv, kArrived);
  if (ends_.is(recv, kReady) && ends_.true_partner(recv) != kNoInstruction) end_receive(recv);
}

void Ends::end_receive(InstructionId recv) {
  end(recv);
  if (!ends_.is(recv, kTookCredit)) return;
  const InstructionId send = code(recv).link;
  tell(FrameKind::Credit, send, program_.rank_of(send));
}

/// The last of its members, whose ever, starts a collective.
void Ends::member_ready(InstructionId member) {
  const std::uint32_t c = code(member).route;
  const auto& members = program_.collectives[c].members;
  if (++members_ready_[c] < members.size()) return;
  const auto own = std::find_if(members.begin(), members.end(),
                                [&](const auto& one) { return ends_.holds(one.instruction); });
  PIPEWRIGHT_ASSERT(own != members.end(), "a rank was told of a collective that it has no part in");
  ends_.moving(own->instruction) = now_;
  const std::int64_t takes = costs_.collective_ns.empty() ? 0 : costs_.collective_ns[c];
  if (takes > 0) return events_.push({now_ + takes, own->instruction});
  end(own->instruction);
}

void Ends::tell(FrameKind kind, InstructionId send, RankId to) {
  Outgoing out;
  out.kind = kind;
  out.send = send;
  out.to = to;
  if (kind == FrameKind::Data) {
    out.data = std::move(ends_.payload(send));
    out.moving_ns = now_;
  }
  outgoing_.push_back(std::move(out));
}

}  // namespace pipewright::exec::mpi
