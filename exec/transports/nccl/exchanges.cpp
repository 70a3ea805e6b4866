// A RankLink's sends and receives within a group: rows that go to other ranks' experts, and keys
// and values that go round.
#include <algorithm>
#include <utility>

#include "exec/transports/nccl/rank_link.hpp"

namespace pipewright::exec::nccl {

/// One group of sends and receives, in which NCCL does all at once. What stays here is copied.
void RankLink::send_to_all(std::uint32_t c, const PartsOfMembers& parts, void* stream) {
  void* const communicator = communicators_[c];
  const auto own = static_cast<std::size_t>(plan_.communicators[c].index_of(rank_));
  constexpr int kKind = PIPEWRIGHT_NCCL_BYTES;
  constexpr const char* kWhat = "an exchange of rows";
  call([&] { return nccl_.group_start(); }, kWhat);
  const std::byte* out = parts.out;
  std::byte* in = parts.in;
  for (std::size_t peer = 0; peer < parts.bytes_out.size(); ++peer) {
    const std::size_t sent = parts.bytes_out[peer], come = parts.bytes_in[peer];
    const int number = static_cast<int>(peer);
    if (peer == own) {
      if (sent > 0) cuda::require(*cuda_, cuda_->copy(stream, in, out, sent));
    } else {
      if (sent > 0)
        call([&] { return nccl_.send(out, sent, kKind, number, communicator, stream); }, kWhat);
      if (come > 0)
        call([&] { return nccl_.receive(in, come, kKind, number, communicator, stream); }, kWhat);
    }
    out += sent;
    in += come;
  }
  call([&] { return nccl_.group_end(); }, kWhat);
  settle(c);
}

/// To the next member and from the one before, as one group: between two they are the same.
void RankLink::send_round(InstructionId member, const cuda::RoundOfGroup& round, void* stream) {
  const std::uint32_t c = plan_.of_collective[code(member).route];
  const Communicator& group = plan_.communicators[c];
  const int members = static_cast<int>(group.members.size()), own = group.index_of(rank_);
  const int next = (own + 1) % members, before = (own + members - 1) % members;
  const std::string what = program_.text(member);
  constexpr int kKind = PIPEWRIGHT_NCCL_BYTES;
  call([&] { return nccl_.group_start(); }, "a group");
  for (const cuda::RoundOfGroup::Hop& hop : round.hops) {
    call([&] { return nccl_.send(hop.sent, round.bytes, kKind, next, communicators_[c], stream); },
         what.c_str());
    call(
        [&] {
          return nccl_.receive(hop.arrived, round.bytes, kKind, before, communicators_[c], stream);
        },
        what.c_str());
  }
  call([&] { return nccl_.group_end(); }, "a group");
  settle(c);
}

/// From the host by way of the GPUs to the host; nobody waits here.
void RankLink::begin_counting(InstructionId member, ExchangeOfMembers& rows, void* stream) {
  const std::uint32_t c = plan_.of_collective[code(member).route];
  const std::size_t counts = rows.counts_out.size(), bytes = counts * sizeof(std::int32_t);
  cuda::Queue& queue = *device_.queue;
  if (counts_.size() < counts) counts_ = cuda::Pinned<std::int32_t>(*cuda_, counts);
  std::copy(rows.counts_out.begin(), rows.counts_out.end(), counts_.data());
  counting_.emplace(Counting{member, &rows, queue.memory().take_floats(counts),
                             queue.memory().take_floats(counts), device_.timeline->mark(stream),
                             nullptr});
  begin_on(stream);
  const Counting& own = *counting_;
  cuda::require(*cuda_, cuda_->copy(stream, own.out.at(), counts_.data(), bytes));
  const std::size_t members = plan_.communicators[c].members.size();
  const std::vector<std::size_t> each(members, bytes / members);
  send_to_all(c,
              {static_cast<const std::byte*>(own.out.at()), static_cast<std::byte*>(own.in.at()),
               each, each},
              stream);
  cuda::require(*cuda_, cuda_->copy(stream, counts_.data(), own.in.at(), bytes));
  counting_->there = queue.record(stream);
}

bool RankLink::has_counted() const {
  return counting_ && cuda_->is_over(counting_->there.get()) != 0;
}

/// Now it is known what comes.
void RankLink::finish_counting() {
  if (!counting_) return;
  cuda::Queue& queue = *device_.queue;
  queue.enter();
  queue.finish(counting_->there, between_);
  const Counting done = *std::exchange(counting_, std::nullopt);
  done.rows->counts_in.assign(counts_.data(), counts_.data() + done.rows->counts_in.size());
  done.rows->make_room();
  exchange_rows(done.member, *parts_[done.member - begin_]);
  static_cast<void>(note_call(done.member, done.start));
}

/// Behind what is on the computing stream by now: the pool hands out memory that work there may
/// still read or write.
void RankLink::begin_on(void* stream) const {
  cuda::Queue& queue = *device_.queue;
  if (stream != queue.computing()) queue.wait(stream, queue.record(queue.computing()));
}

void RankLink::exchange_rows(InstructionId member, const cuda::DevicePart& part) {
  const ExchangeOfMembers& rows = *part.exchange.rows;
  void* const stream = stream_of(member);
  begin_on(stream);
  const std::size_t row_bytes = static_cast<std::size_t>(rows.width) * part.exchange.number_bytes;
  PartsOfMembers parts{reinterpret_cast<const std::byte*>(rows.out),
                       reinterpret_cast<std::byte*>(rows.in), rows.rows_out, rows.rows_in};
  for (std::size_t& one : parts.bytes_out) one *= row_bytes;
  for (std::size_t& one : parts.bytes_in) one *= row_bytes;
  send_to_all(plan_.of_collective[code(member).route], parts, stream);
}

}  // namespace pipewright::exec::nccl
