#include "exec/transports/process/ends.hpp"

#include "core/base/error.hpp"

namespace pipewright::exec::mpi {

Ends::Ends(const Program& program, RankId rank, local::MessageCosts costs)
    : program_(program),
      begin_(program.rank_begin[static_cast<std::size_t>(rank.value)]),
      end_(program.rank_begin[static_cast<std::size_t>(rank.value) + 1]),
      costs_(std::move(costs)),
      ends_(program, begin_, end_),
      machine_(program, costs_.bytes, begin_, end_, *this) {}

void Ends::reset() {
  ends_.reset();
  machine_.reset();
  events_ = {};
  outgoing_.clear();
  now_ = 0;
}

// --- What the rank does ---

void Ends::issue(InstructionId end, PayloadPtr data, std::int64_t now) {
  pass_to(now);
  ends_.issue(end, std::move(data));
  machine_.issue(end);
  machine_.run();
}

void Ends::provide(InstructionId send, PayloadPtr data, std::int64_t now) {
  pass_to(now);
  ends_.provide(send, std::move(data));
  machine_.look_at(send);
  machine_.run();
}

// --- What arrives ---

void Ends::on_data(InstructionId send, PayloadPtr data, bool took_credit, std::int64_t moving_ns,
                   std::int64_t now) {
  pass_to(now);
  const InstructionId recv = program_.code[send].link;
  PIPEWRIGHT_ASSERT(recv != kNoInstruction && machine_.holds(recv),
                    "a message came to a rank that does not receive it");
  ends_.payload(recv) = std::move(data);
  ends_.moves(recv, moving_ns);
  const std::int64_t due = moving_ns + transfer_ns(send);
  if (transfer_ns(send) > 0 && due > now_) return events_.push({due, recv, took_credit});
  machine_.arrived(recv, took_credit);
  machine_.run();
}

void Ends::on_signal(TransferSignal signal, InstructionId id, std::int64_t now) {
  pass_to(now);
  machine_.signalled(signal, id);
  machine_.run();
}

void Ends::on_sent(InstructionId send, std::int64_t now) {
  pass_to(now);
  const std::int64_t due = ends_.moving_since(send) + transfer_ns(send);
  if (transfer_ns(send) > 0 && due > now_) return events_.push({due, send, false});
  machine_.sent(send);
  machine_.run();
}

void Ends::run_events(std::int64_t now) {
  while (!events_.empty() && events_.top().time <= now) {
    const Event event = events_.top();
    events_.pop();
    pass_to(event.time);
    const Instruction& in = program_.code[event.id];
    if (in.in_collective()) {
      machine_.collective_ended(in.route);
    } else if (is_recv(in.kind)) {
      machine_.arrived(event.id, event.took_credit);
    } else {
      machine_.sent(event.id);
    }
    machine_.run();
  }
  pass_to(now);
}

void Ends::report(Timeline& timeline, Progress& progress) const {
  ends_.report(timeline, progress);
  for (InstructionId id = begin_; id < end_; ++id) progress.left[id] = machine_.has_left(id);
}

// --- What the machine tells ---

void Ends::start_message(InstructionId send, bool eager) {
  ends_.moves(send, now_);
  const InstructionId recv = program_.code[send].link;
  if (recv == kNoInstruction) return;
  outgoing_.push_back({.kind = FrameKind::Data,
                       .send = send,
                       .to = program_.rank_of(recv),
                       .data = std::move(ends_.payload(send)),
                       .took_credit = machine_.took_credit(send),
                       .moving_ns = now_,
                       .ends_when_sent = !eager});
}

void Ends::start_collective(std::uint32_t index) {
  const auto& members = program_.collectives[index].members;
  const auto own = std::find_if(members.begin(), members.end(),
                                [&](const auto& one) { return machine_.holds(one.instruction); });
  PIPEWRIGHT_ASSERT(own != members.end(), "a rank was told of a collective that it has no part in");
  ends_.moves(own->instruction, now_);
  const std::int64_t takes = costs_.of_collective(index);
  if (takes == 0) return machine_.collective_ended(index);
  events_.push({now_ + takes, own->instruction, false});
}

void Ends::on_ended(InstructionId id) {
  ends_.end(id, now_);
  ++ended_count_;
  if (!program_.part_of.empty()) machine_.look_at_queues(program_.rank_of(id));
}

void Ends::tell(TransferSignal signal, InstructionId id, RankId to) {
  const auto kind = signal == TransferSignal::ReceiveReady ? FrameKind::Ready
                    : signal == TransferSignal::CreditBack ? FrameKind::Credit
                                                           : FrameKind::Member;
  outgoing_.push_back({.kind = kind, .send = id, .to = to});
}

}  // namespace pipewright::exec::mpi
