#include "exec/transports/process/transport.hpp"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "core/base/error.hpp"
#include "exec/base/backoff.hpp"
#include "exec/base/checksum.hpp"
#include "exec/base/waiting.hpp"
#include "exec/runtime/program_checksum.hpp"

namespace pipewright::exec::mpi {
namespace {

// The serving thread looks this often while the rank computes: soon after something came more
// often, later less.
constexpr std::int64_t kShortestPauseNs = 50'000, kLongestPauseNs = 400'000;
// Between two looks while the rank looks for itself.
constexpr std::int64_t kIdlePauseNs = 1'000'000;
// How long the rank of process 0 has to wait before it asks whether anything can still happen, and
// how long after an answer it asks again.
constexpr std::int64_t kQuietAfterNs = 4'000'000, kAskAgainNs = 8'000'000;
constexpr std::int64_t kPostEveryNs = 200'000'000;
constexpr std::int64_t kLongestSleepNs = 20'000'000;
constexpr std::int64_t kSleepLatenessNs = 80'000;

}  // namespace

MpiTransport::MpiTransport(const Program& program, local::MessageCosts costs, Link& link,
                           bool check_parts)
    : program_(program),
      link_(link),
      check_parts_(check_parts),
      program_seal_(checksum_of(program)),
      run_(link),
      rank_(rank_of_process(link.process())),
      begin_(program.ranks() > link.process()
                 ? program.rank_begin[static_cast<std::size_t>(link.process())]
                 : 0),
      end_(program.ranks() > link.process()
               ? program.rank_begin[static_cast<std::size_t>(link.process()) + 1]
               : 0),
      ends_(program, program.ranks() > link.process() ? rank_ : RankId(0), std::move(costs)),
      parts_(program, {rank_}),
      joined_(static_cast<std::size_t>(link.processes())),
      quiet_search_(link.processes()),
      final_states_(static_cast<std::size_t>(link.processes())),
      progress_(static_cast<std::size_t>(link.processes()), 0) {
  if (program.ranks() != link.processes()) {
    throw InputError("this Program has " + std::to_string(program.ranks()) +
                     " ranks and the job has " + std::to_string(link.processes()) +
                     " processes; start it with mpirun -np " + std::to_string(program.ranks()));
  }
  server_ = std::thread([this] { serve(); });
}

MpiTransport::~MpiTransport() {
  over_.store(true);
  server_.join();
  const Lock lock(mutex());
  link_.presence().expect_none();
}

void MpiTransport::throw_if_stopped() const {
  if (stopped_.load()) throw Stopped{};
}

// --- Time ---

std::int64_t MpiTransport::now() const { return local::steady_ns() - begin_ns_.load(); }

void MpiTransport::sleep_until(RankId, std::int64_t deadline) {
  while (true) {
    throw_if_stopped();
    const std::int64_t remaining = deadline - now();
    if (remaining <= 0) return;
    if (remaining > kSleepLatenessNs) {
      local::sleep_until_steady(local::steady_ns() +
                                std::min(remaining - kSleepLatenessNs, kLongestSleepNs));
    } else {
      std::this_thread::yield();
    }
  }
}

// --- The rank ---

void MpiTransport::issue(RankId, InstructionId end, PayloadPtr data) {
  const Lock lock(mutex());
  throw_if_stopped();
  ends_.issue(end, std::move(data), now());
  turn();
}

void MpiTransport::provide(RankId, InstructionId send, PayloadPtr data) {
  const Lock lock(mutex());
  throw_if_stopped();
  ends_.provide(send, std::move(data), now());
  turn();
}

PayloadPtr MpiTransport::take(RankId, InstructionId recv) {
  const Lock lock(mutex());
  return ends_.take(recv);
}

void MpiTransport::wait(RankId, InstructionId id) {
  // A computation of the rank itself, further down its list, never ends this wait.
  const bool may_end = program_.code[id].is_communication();
  const Done done = [&] { return may_end && ends_.has_ended(id); };
  if (done()) return;
  Lock lock(mutex());
  block_until(lock, done);
}

/// Looks for frames until it is done.
void MpiTransport::block_until(Lock& lock, const Done& done) {
  rank_looks_.store(true);
  blocked_since_ns_ = local::steady_ns();
  const auto leave = [&] {
    blocked_ = nullptr;
    rank_looks_.store(false);
  };
  try {
    for (local::Backoff backoff;;) {
      turn();
      if (done()) return leave();
      throw_if_stopped();
      if (!damage_.empty()) throw RunError(damage_);
      blocked_ = &done;
      lock.unlock();
      backoff.pause();
      lock.lock();
    }
  } catch (...) {
    leave();
    throw;
  }
}

// --- Collectives ---

void MpiTransport::contribute(RankId, InstructionId member, PartPtr part) {
  HostPayload packed = part->pack();
  const Lock lock(mutex());
  throw_if_stopped();
  Frame frame = frame_of(FrameKind::Part, member);
  frame.note = std::move(packed.note);
  frame.values = std::move(packed.values);
  if (check_parts_) {
    frame.head.has_checksum = 1;
    frame.head.checksum = checksum_of(frame.note, frame.values);
  }
  for (const Collective::Member& other : parts_.members_of(member)) {
    if (other.rank != rank_) post(process_of_rank(other.rank), frame);
  }
  parts_.put(member, std::move(part));
  turn();
}

std::vector<PartPtr> MpiTransport::gathered(RankId, InstructionId member) {
  Lock lock(mutex());
  block_until(lock, [&] { return parts_.is_complete(member); });
  return parts_.read(member);
}

void MpiTransport::take_part(Frame& frame) {
  if (frame.head.has_checksum != 0 &&
      frame.head.checksum != checksum_of(frame.note, frame.values)) {
    damage_ = "the part of " + program_.text(frame.head.id) + " from rank " +
              std::to_string(program_.rank_of(frame.head.id).value) +
              " was damaged on its way: its checksum is another one";
    return;
  }
  parts_.put(frame.head.id, std::make_shared<PackedPart>(
                                HostPayload(std::move(frame.values), std::move(frame.note))));
}

// --- Meetings ---

void MpiTransport::meet(RankId, const std::function<void()>& between) {
  Lock lock(mutex());
  throw_if_stopped();
  link_.presence().expect_signs(local::steady_ns());
  Packer packer;
  packer.put<std::uint64_t>(program_seal_);
  for (const PackedBytes& bytes : come_together(lock, packer.take())) {
    if (Unpacker(bytes).get<std::uint64_t>() != program_seal_) {
      throw InputError("the processes of this run have not been given the same plan and flags");
    }
  }
  if (between) {
    lock.unlock();
    between();
    lock.lock();
  }
  come_together(lock, {});
  begin_step(all_joined_ns_);
  throw_if_stopped();
}

std::vector<PackedBytes> MpiTransport::share(PackedBytes own) {
  Lock lock(mutex());
  return come_together(lock, std::move(own));
}

std::vector<PackedBytes> MpiTransport::come_together(Lock& lock, PackedBytes own) {
  const std::uint64_t meeting = ++meetings_;
  if (process() == 0) {
    join(0, std::move(own));
  } else {
    Frame frame = frame_of(FrameKind::Join);
    frame.note = std::move(own);
    post(0, std::move(frame));
  }
  block_until(lock, [&] { return met_ >= meeting; });
  return std::move(all_joined_);
}

/// In process 0.
void MpiTransport::join(int process, PackedBytes bytes) {
  joined_[static_cast<std::size_t>(process)] = std::move(bytes);
  if (!std::all_of(joined_.begin(), joined_.end(), [](const auto& one) { return !!one; })) return;
  all_joined_.clear();
  Packer packer;
  for (auto& one : joined_) {
    packer.put_all(std::span<const std::byte>(*one));
    all_joined_.push_back(*std::move(one));
    one.reset();
  }
  Frame frame = frame_of(FrameKind::AllJoined);
  frame.note = packer.take();
  all_joined_ns_ = frame.head.time_ns = local::steady_ns();
  post_to_all(frame);
  ++met_;
}

void MpiTransport::begin_step(std::int64_t began_there_ns) {
  ends_.reset();
  begin_ns_.store(began_there_ns - link_.clock().offset_ns);
  ++epoch_;
  std::vector<Frame> early = std::exchange(early_, {});
  for (Frame& frame : early) handle_step(frame);
  flush();
}

std::vector<ClockError> MpiTransport::clocks() {
  const ClockOffset now = process() == 0 ? ClockOffset{} : link_.measure_clock();
  const ClockOffset then = link_.clock();
  Packer packer;
  packer.put<ClockError>(ClockError{then.offset_ns, now.offset_ns - then.offset_ns,
                                    std::max(then.bound_ns, now.bound_ns)});
  std::vector<ClockError> errors;
  for (const PackedBytes& bytes : share(packer.take())) {
    errors.push_back(Unpacker(bytes).get<ClockError>());
  }
  return errors;
}

// --- The serving thread ---

void MpiTransport::serve() {
  local::ask_for_exact_sleeps();
  std::int64_t pause = kShortestPauseNs;
  std::uint64_t seen = 0;
  while (!over_.load()) {
    const bool looks = rank_looks_.load();
    {
      const Lock lock(mutex());
      try {
        if (!looks || link_.presence().awaits_goodbye()) turn();
        look_for_quiet(local::steady_ns());
      } catch (const std::exception& error) {
        if (damage_.empty()) damage_ = error.what();
      }
      link_.look_around();
    }
    const std::uint64_t frames = frames_.load(std::memory_order_relaxed);
    pause = frames != seen ? kShortestPauseNs : std::min(2 * pause, kLongestPauseNs);
    seen = frames;
    local::sleep_until_steady(local::steady_ns() + (looks ? kIdlePauseNs : pause));
  }
}

// --- Whether anything can still happen ---

MessageCounts MpiTransport::message_counts() const {
  const bool waits = blocked_ != nullptr && !(*blocked_)() && !ends_.has_events() &&
                     early_.empty() && link_.wire().is_at_rest();
  return {waits, sent_, received_};
}

void MpiTransport::look_for_quiet(std::int64_t now) {
  if (process() != 0 || stuck_ || stopped_.load() || quiet_search_.is_asking()) return;
  if (blocked_ == nullptr || now - blocked_since_ns_ < kQuietAfterNs) return;
  if (now - asked_ns_ < kAskAgainNs) return;
  settle();
  if (!message_counts().waits) return;
  asked_ns_ = now;
  quiet_search_.ask();
  Frame probe = frame_of(FrameKind::Probe);
  probe.head.a = quiet_search_.question();
  post_to_all(probe);
  learn_counts(0, quiet_search_.question(), message_counts());
}

void MpiTransport::learn_counts(int process, std::uint64_t question, const MessageCounts& state) {
  if (!quiet_search_.answer(process, question, state)) return;
  stuck_ = true;
  watch_.notify_all();
}

// --- Watching and leaving ---

bool MpiTransport::stands_still_within(std::int64_t timeout_ns) {
  Lock lock(mutex());
  watch_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [&] {
    return ((stuck_ || ended_elsewhere_.load()) && !stopped_.load()) || watch_ended_;
  });
  return stuck_ && !stopped_.load();
}

void MpiTransport::end_watch() noexcept {
  const Lock lock(mutex());
  watch_ended_ = true;
  watch_.notify_all();
}

void MpiTransport::post_progress(std::uint64_t ended) {
  const Lock lock(mutex());
  const std::int64_t now = local::steady_ns();
  if (now - posted_ns_ < kPostEveryNs) return;
  posted_ns_ = now;
  if (process() == 0 || link_.presence().is_lost(0)) return;
  Frame frame = frame_of(FrameKind::Progress);
  frame.head.a = ended;
  post(0, std::move(frame));
}

std::vector<LostRank> MpiTransport::lost(std::int64_t silence_ns) {
  Lock lock(mutex());
  Presence& presence = link_.presence();
  // The serving thread reads meanwhile, unless the wire is broken.
  for (link_.look_around(); presence.awaits_goodbye() && damage_.empty(); link_.look_around()) {
    lock.unlock();
    local::sleep_until_steady(local::steady_ns() + kIdlePauseNs);
    lock.lock();
  }
  link_.give_up_silent(silence_ns);
  std::vector<LostRank> lost;
  for (int p = 0; p < processes(); ++p) {
    if (has_deserted(p) && link_.failure_of(p)) {
      lost.push_back({rank_of_process(p), link_.failure_of(p)->text, true});
    } else if (presence.is_lost(p) || has_deserted(p)) {
      lost.push_back({rank_of_process(p), "its " + presence.how_lost(p)});
    }
  }
  return lost;
}

/// It has given up, or has said goodbye while our rank still waits, and nobody had ended the run:
/// what it has said before it left is here. Process 0 knows of all meetings that are over.
bool MpiTransport::has_deserted(int process) const {
  if (ended_elsewhere_.load()) return false;
  if (link_.failure_of(process)) return true;
  if (!link_.presence().has_left(process)) return false;
  const bool can_tell = this->process() == 0 || process == 0;
  return can_tell && blocked_ != nullptr && !(*blocked_)();
}

EndOfRun MpiTransport::end_elsewhere() const {
  const Lock lock(mutex());
  return end_elsewhere_;
}

void MpiTransport::stop() noexcept {
  const Lock lock(mutex());
  if (stopped_.exchange(true)) return;
  // Also where another process has ended it: its word may reach somebody later than our goodbye.
  try {
    Packer packer;
    packer.put<bool>(own_end_.by_loss);
    packer.put_text(own_end_.why);
    Frame frame = frame_of(FrameKind::End);
    frame.note = packer.take();
    post_to_all(frame);
  } catch (const std::exception&) {
    // Whoever cannot be told notices it himself.
  }
}

void MpiTransport::hand_in(PackedBytes final_state, EndOfRun end) noexcept {
  const Lock lock(mutex());
  own_end_ = std::move(end);
  try {
    Frame frame = frame_of(FrameKind::FinalState);
    frame.note = std::move(final_state);
    if (process() != 0 && !link_.presence().is_lost(0)) post(0, std::move(frame));
  } catch (const std::exception&) {
    // Process 0 then says what it knows.
  }
}

std::vector<PackedBytes> MpiTransport::handed_in(std::int64_t timeout_ns) {
  const std::int64_t deadline = local::steady_ns() + timeout_ns;
  std::vector<PackedBytes> all;
  if (process() != 0) return all;
  Lock lock(mutex());
  const auto is_there = [&](int p) {
    return final_states_[static_cast<std::size_t>(p)] || link_.presence().is_gone(p);
  };
  const auto complete = [&] {
    if (link_.wire().is_broken()) return true;  // nothing comes any more
    for (int p = 1; p < processes(); ++p) {
      if (!is_there(p)) return false;
    }
    return true;
  };
  local::Backoff backoff;
  while (!complete() && local::steady_ns() < deadline) {
    turn();
    link_.look_around();
    lock.unlock();
    backoff.pause();
    lock.lock();
  }
  for (const auto& look : final_states_) {
    if (look) all.push_back(*look);
  }
  return all;
}

void MpiTransport::report(Timeline& timeline, Progress& progress) const {
  const Lock lock(mutex());
  ends_.report(timeline, progress);
}

}  // namespace pipewright::exec::mpi
