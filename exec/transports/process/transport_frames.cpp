// What MpiTransport does with a frame that came, and how it tells the others what came of it.
#include <utility>

#include "core/base/error.hpp"
#include "exec/transports/process/transport.hpp"

namespace pipewright::exec::mpi {

// --- Frames ---

Frame MpiTransport::frame_of(FrameKind kind, InstructionId id) const {
  Frame frame;
  frame.head.kind = kind;
  frame.head.run = run_.number();
  frame.head.epoch = epoch_;
  frame.head.id = id;
  return frame;
}

void MpiTransport::post(int to, Frame frame) {
  if (to == process()) {
    ArrivedFrame own{to, std::move(frame)};
    return handle(own);
  }
  if (moves_run(frame.head.kind)) ++sent_;
  link_.send(to, std::move(frame));
}

void MpiTransport::post_to_all(const Frame& frame) {
  for (int p = 0; p < processes(); ++p) {
    if (p != process() && !link_.presence().is_lost(p)) post(p, frame);
  }
}

/// One look at the wire, and all that follows from it.
void MpiTransport::turn() {
  while (auto arrived = link_.receive(run_.number())) {
    frames_.fetch_add(1, std::memory_order_relaxed);
    if (moves_run(arrived->frame.head.kind)) ++received_;
    handle(*arrived);
  }
  settle();
}

/// What follows from the frames that have been read: none of it stays behind.
void MpiTransport::settle() {
  for (const std::uint64_t token : link_.take_sent(run_.number()))
    ends_.on_sent(static_cast<InstructionId>(token), now());
  if (ends_.has_events()) ends_.run_events(now());
  flush();
}

void MpiTransport::handle(ArrivedFrame& arrived) {
  Frame& frame = arrived.frame;
  if (!is_of_step(frame.head.kind)) return handle_run(arrived);
  if (frame.head.epoch > epoch_) {
    early_.push_back(std::move(frame));
  } else {
    handle_step(frame);
  }
}

void MpiTransport::handle_step(Frame& frame) {
  if (frame.head.epoch < epoch_) return;
  const InstructionId id = frame.head.id;
  PIPEWRIGHT_ASSERT(id < program_.code.size(), "a frame about an instruction that does not exist");
  switch (frame.head.kind) {
    case FrameKind::Ready:
      return ends_.on_signal(TransferSignal::ReceiveReady, id, now());
    case FrameKind::Credit:
      return ends_.on_signal(TransferSignal::CreditBack, id, now());
    case FrameKind::Member:
      return ends_.on_signal(TransferSignal::MemberReady, id, now());
    default: {
      auto payload = std::make_unique<HostPayload>(std::move(frame.values), std::move(frame.note));
      if (frame.head.has_checksum != 0) payload->checksum = frame.head.checksum;
      ends_.on_data(id, std::move(payload), frame.head.took_credit != 0, frame.head.time_ns, now());
    }
  }
}

void MpiTransport::handle_run(ArrivedFrame& arrived) {
  Frame& frame = arrived.frame;
  const auto from = static_cast<std::size_t>(arrived.from);
  switch (frame.head.kind) {
    case FrameKind::Part:
      return take_part(frame);
    case FrameKind::Join:
      return join(arrived.from, std::move(frame.note));
    case FrameKind::AllJoined: {
      Unpacker unpacker(frame.note);
      all_joined_.clear();
      for (int p = 0; p < processes(); ++p) all_joined_.push_back(unpacker.get_all<std::byte>());
      all_joined_ns_ = frame.head.time_ns;
      ++met_;
      return;
    }
    case FrameKind::Probe: {
      settle();  // a frame that was read and not yet answered is nothing that waits
      const MessageCounts state = message_counts();
      Frame answer = frame_of(FrameKind::State, state.waits ? 0 : kNoInstruction);
      answer.head.time_ns = static_cast<std::int64_t>(frame.head.a);
      answer.head.a = state.sent;
      answer.head.b = state.received;
      return post(arrived.from, std::move(answer));
    }
    case FrameKind::State:
      return learn_counts(arrived.from, static_cast<std::uint64_t>(frame.head.time_ns),
                          {frame.head.id == 0, frame.head.a, frame.head.b});
    case FrameKind::Progress: {
      progress_[from] = frame.head.a;
      std::uint64_t sum = 0;
      for (const std::uint64_t one : progress_) sum += one;
      return progress_elsewhere_.store(sum);
    }
    case FrameKind::End: {
      Unpacker unpacker(frame.note);
      EndOfRun end;
      end.by_loss = unpacker.get<bool>();
      end.why = unpacker.get_text();
      if (end_elsewhere_.why.empty()) end_elsewhere_ = std::move(end);
      ended_elsewhere_.store(true);
      return watch_.notify_all();
    }
    case FrameKind::FinalState:
      final_states_[from] = std::move(frame.note);
      return;
    default:
      return;
  }
}

/// Tells the others what has come of it. What the rank tells itself may bring more to tell.
void MpiTransport::flush() {
  while (true) {
    std::vector<Outgoing> outgoing = ends_.take_outgoing();
    if (outgoing.empty()) break;
    for (Outgoing& out : outgoing) tell(std::move(out));
  }
  ended_count_.store(ends_.ended_count(), std::memory_order_relaxed);
}

void MpiTransport::tell(Outgoing out) {
  Frame frame = frame_of(out.kind, out.send);
  if (out.kind == FrameKind::Data) {
    auto* host = dynamic_cast<HostPayload*>(out.data.get());
    if (host == nullptr) throw RunError("a message that does not lie in host memory");
    frame.note = std::move(host->note);
    frame.values = std::move(host->values);
    frame.head.has_checksum = host->checksum.has_value() ? 1 : 0;
    frame.head.checksum = host->checksum.value_or(0);
    frame.head.took_credit = out.took_credit ? 1 : 0;
    frame.head.time_ns = out.moving_ns;
    const bool asks = out.ends_when_sent && process_of_rank(out.to) != process();
    if (asks) frame.token = run_.token(out.send);
  }
  post(process_of_rank(out.to), std::move(frame));
  if (out.ends_when_sent && process_of_rank(out.to) == process()) ends_.on_sent(out.send, now());
}

}  // namespace pipewright::exec::mpi
