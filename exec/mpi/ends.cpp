#include "exec/mpi/ends.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace pipewright::exec::mpi {

Ends::Ends(const Program& program, RankId rank, local::MessageCosts costs)
    : program_(program),
      begin_(program.rank_begin[static_cast<std::size_t>(rank.value)]),
      end_(program.rank_begin[static_cast<std::size_t>(rank.value) + 1]),
      costs_(std::move(costs)),
      lanes_(lane_table(program)),
      credit_(program, costs_.bytes),
      ended_(std::make_unique<std::atomic<std::uint8_t>[]>(end_ - begin_)) {
  reset();
}

void Ends::reset() {
  const std::size_t n = end_ - begin_;
  for (std::size_t i = 0; i < n; ++i) ended_[i].store(0, std::memory_order_relaxed);
  state_.assign(n, 0);
  payload_.clear();
  payload_.resize(n);
  start_.assign(n, kNotEnded);
  moving_.assign(n, kNotEnded);
  ended_at_.assign(n, kNotEnded);
  next_.assign(lanes_.lane_begin.begin(), lanes_.lane_begin.end() - 1);
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
  state_[at(end)] |= kIssued;
  if (data != nullptr || !is_send(code(end).kind)) state_[at(end)] |= kData;
  if (data != nullptr) payload_[at(end)] = std::move(data);  // a RECV's may be here already
  look_at(end);
  drain();
}

void Ends::provide(InstructionId send, PayloadPtr data, std::int64_t now) {
  now_ = std::max(now_, now);
  state_[at(send)] |= kData;
  payload_[at(send)] = std::move(data);
  look_at(send);
  drain();
}

// --- What arrives ---

void Ends::on_ready(InstructionId send, std::int64_t now) {
  now_ = std::max(now_, now);
  state_[at(send)] |= kPeerReady;
  if (has_started(send) || !is(send, kReady)) return;
  credit_.may_be_eager(send) ? meetings_.push_back(send) : begin_rendezvous(send);
  drain();
}

void Ends::on_data(InstructionId send, PayloadPtr data, bool took_credit, std::int64_t moving_ns,
                   std::int64_t now) {
  now_ = std::max(now_, now);
  const InstructionId recv = code(send).link;
  PIPEWRIGHT_ASSERT(recv != kNoInstruction && begin_ <= recv && recv < end_,
                    "a message came to a rank that does not receive it");
  payload_[at(recv)] = std::move(data);
  moving_[at(recv)] = moving_ns;
  if (took_credit) state_[at(recv)] |= kTookCredit;
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
  const std::int64_t due = moving_[at(send)] + transfer_ns(send);
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

void Ends::look_at(InstructionId id) {
  if (!code(id).has(Instruction::kOnComputeLane)) {
    lanes_to_try_.push_back(lanes_.lane_of[id]);
  } else if (is(id, kIssued | kData)) {
    become_ready(id);  // the rank issues it when its compute lane stands there
  }
}

void Ends::drain() {
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
    } else if (!meetings_.empty()) {
      meet_without_credit();
    } else {
      return;
    }
  }
}

void Ends::try_lane(std::uint32_t lane) {
  if (next_[lane] == lanes_.lane_begin[lane + 1]) return;
  const InstructionId head = lanes_.instructions[next_[lane]];
  if (is(head, kIssued | kData) && !is(head, kReady)) become_ready(head);
}

void Ends::end(InstructionId id) {
  ended_at_[at(id)] = now_;
  ended_[at(id)].store(1, std::memory_order_release);
  ++ended_count_;
  if (code(id).has(Instruction::kOnComputeLane)) return;
  const std::uint32_t lane = lanes_.lane_of[id];
  ++next_[lane];
  lanes_to_try_.push_back(lane);
}

// --- Transfers ---

void Ends::become_ready(InstructionId id) {
  state_[at(id)] |= kReady;
  start_[at(id)] = now_;
  if (code(id).in_collective()) {
    for (const auto& other : program_.collectives[code(id).route].members) {
      if (other.instruction != id) tell(FrameKind::Member, id, other.rank);
    }
    return member_ready(id);
  }
  if (is_send(code(id).kind)) {
    if (credit_.is_unlimited(id)) return leave(id);
    if (credit_.may_be_eager(id)) accounts_to_serve_.push_back(credit_.account_of(id));
    if (!is(id, kPeerReady)) return;
    return credit_.may_be_eager(id) ? meetings_.push_back(id) : begin_rendezvous(id);
  }
  const InstructionId send = true_partner(id);
  if (send == kNoInstruction) return;
  if (is(id, kArrived)) return end_receive(id);
  if (!credit_.is_unlimited(send)) tell(FrameKind::Ready, send, program_.rank_of(send));
}

void Ends::serve(Credit::AccountId account) {
  const InstructionId send = credit_.next(account);
  if (send == kNoInstruction || !is(send, kReady)) return;
  leave(send);
  accounts_to_serve_.push_back(account);
}

void Ends::leave(InstructionId send) {
  state_[at(send)] |= kLeft;
  credit_.take(send);
  moving_[at(send)] = now_;
  if (code(send).link != kNoInstruction) {
    tell(FrameKind::Data, send, program_.rank_of(code(send).link));
    outgoing_.back().took_credit = !credit_.is_unlimited(send);
  }
  end(send);
}

void Ends::meet_without_credit() {
  std::erase_if(meetings_, [&](InstructionId send) { return has_started(send); });
  if (meetings_.empty()) return;
  // One at a time, by lane: it may let a later send of its edge have credit.
  const auto first = std::min_element(
      meetings_.begin(), meetings_.end(),
      [&](InstructionId a, InstructionId b) { return lanes_.lane_of[a] < lanes_.lane_of[b]; });
  begin_rendezvous(*first);
}

void Ends::begin_rendezvous(InstructionId send) {
  state_[at(send)] |= kMoving;
  moving_[at(send)] = now_;
  tell(FrameKind::Data, send, program_.rank_of(code(send).link));
  outgoing_.back().ends_when_sent = true;
  if (!credit_.may_be_eager(send)) return;
  credit_.pass(send);
  accounts_to_serve_.push_back(credit_.account_of(send));
}

void Ends::arrive(InstructionId recv) {
  state_[at(recv)] |= kArrived;
  if (is(recv, kReady) && true_partner(recv) != kNoInstruction) end_receive(recv);
}

void Ends::end_receive(InstructionId recv) {
  end(recv);
  if (!is(recv, kTookCredit)) return;
  const InstructionId send = code(recv).link;
  tell(FrameKind::Credit, send, program_.rank_of(send));
}

/// The last of its members, whose ever, starts a collective.
void Ends::member_ready(InstructionId member) {
  const std::uint32_t c = code(member).route;
  const auto& members = program_.collectives[c].members;
  if (++members_ready_[c] < members.size()) return;
  const auto own = std::find_if(members.begin(), members.end(), [&](const auto& one) {
    return begin_ <= one.instruction && one.instruction < end_;
  });
  PIPEWRIGHT_ASSERT(own != members.end(), "a rank was told of a collective that it has no part in");
  moving_[at(own->instruction)] = now_;
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
    out.data = std::move(payload_[at(send)]);
    out.moving_ns = now_;
  }
  outgoing_.push_back(std::move(out));
}

// --- What is seen ---

void Ends::report(Timeline& timeline, Progress& progress) const {
  for (InstructionId id = begin_; id < end_; ++id) {
    if (!code(id).is_communication()) continue;
    timeline.start[id] = start_[at(id)];
    timeline.moving[id] = moving_[at(id)];
    timeline.end[id] = ended_at_[at(id)];
    progress.ended[id] = has_ended(id);
    progress.left[id] = is(id, kLeft);
  }
}

}  // namespace pipewright::exec::mpi
