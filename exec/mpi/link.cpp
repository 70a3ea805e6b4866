#include "exec/mpi/link.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.hpp"
#include "exec/local/backoff.hpp"
#include "exec/local/waiting.hpp"

namespace pipewright::exec::mpi {
namespace {

constexpr int kPings = 500;
constexpr std::int64_t kForEver = std::numeric_limits<std::int64_t>::max();
// How often those who wait here look who is still there.
constexpr int kTurnsPerLook = 256;

// How long somebody who leaves a job that is broken waits for his last words to be heard.
constexpr std::int64_t kLastWordsNs = 700'000'000;

// Hello: what `head.a` says of it.
constexpr std::uint64_t kSite = 0, kMeasured = 1;

Frame frame_of(FrameKind kind) {
  Frame frame;
  frame.head.kind = kind;
  return frame;
}

}  // namespace

Link::Link(std::unique_ptr<Wire> wire, LinkOptions options)
    : wire_(std::move(wire)),
      options_(options),
      sites_(static_cast<std::size_t>(wire_->processes())),
      exchanged_(sites_.size()) {
  greet();
}

Link::~Link() = default;

template <class Done>
bool Link::receive_until(const Done& done, std::int64_t deadline_ns) {
  local::Backoff backoff;
  for (int turn = 1;; ++turn) {
    {
      const std::scoped_lock lock(mutex_);
      while (auto arrived = receive_any()) {
        if (!answer(*arrived)) early_.push_back(*std::move(arrived));
      }
      wire_->take_sent();
      if (presence_ && turn % kTurnsPerLook == 0) presence_->look(local::steady_ns());
      if (done()) return true;
    }
    if (local::steady_ns() > deadline_ns) return false;
    backoff.pause();
  }
}

void Link::greet() {
  const std::int64_t deadline = local::steady_ns() + options_.connect_ns;
  const auto own = static_cast<std::size_t>(process());
  sites_[own] = own_site();
  Packer packer;
  packer.put<int>(sites_[own]->pid);
  packer.put_text(sites_[own]->host);
  packer.put_text(sites_[own]->machine);
  Frame hello = frame_of(FrameKind::Hello);
  hello.head.a = kSite;
  hello.note = packer.take();
  for (int p = 0; p < processes(); ++p) {
    if (p != process()) send(p, hello);
  }
  const auto all_here = [&] {
    return std::all_of(sites_.begin(), sites_.end(), [](const auto& site) { return !!site; });
  };
  if (!receive_until(all_here, deadline)) {
    throw MachineError("not all processes of this job have come; see what mpirun says");
  }
  std::vector<ProcessSite> sites;
  for (const auto& site : sites_) sites.push_back(*site);
  presence_ =
      std::make_unique<Presence>(sites, process(), options_.ask_kernel, options_.silence_ns);
  for (int p = 0; p < processes(); ++p) part_with(p);
  if (process() != 0) {
    clock_ = measure_clock();
    Frame measured = frame_of(FrameKind::Hello);
    measured.head.a = kMeasured;
    const std::scoped_lock lock(mutex_);
    send(0, measured);
  } else if (!receive_until([&] { return measured_ == processes() - 1; }, deadline)) {
    throw MachineError("not all processes of this job answer; see what mpirun says");
  }
}

ClockOffset Link::measure_clock() {
  const bool one_clock =
      sites_.front()->machine == sites_[static_cast<std::size_t>(process())]->machine;
  if (process() == 0 || (one_clock && !options_.measure_clock)) return {};
  OffsetEstimate estimate;
  for (int i = 0; i < kPings; ++i) {
    pong_there_ns_.reset();
    const std::int64_t asked = local::steady_ns();
    {
      const std::scoped_lock lock(mutex_);
      send(0, frame_of(FrameKind::Ping));
    }
    const auto answered = [&] { return pong_there_ns_ || presence_->is_lost(0); };
    if (!receive_until(answered, asked + options_.connect_ns) || !pong_there_ns_) break;
    estimate.add(asked, *pong_there_ns_, local::steady_ns());
  }
  return estimate.result();
}

// --- Frames ---

void Link::send(int to, Frame frame) {
  ++exchanged_[static_cast<std::size_t>(to)].sent;
  wire_->send(to, std::move(frame));
}

std::optional<ArrivedFrame> Link::receive_any() {
  auto arrived = wire_->receive();
  if (!arrived) {
    if (presence_) {
      for (const int gone : wire_->take_gone()) presence_->connection_ended(gone);
    }
    return arrived;
  }
  Exchanged& exchanged = exchanged_[static_cast<std::size_t>(arrived->from)];
  ++exchanged.received;
  if (arrived->frame.head.kind == FrameKind::Bye) exchanged.before_goodbye = arrived->frame.head.a;
  if (presence_) {
    presence_->heard(arrived->from, local::steady_ns());
    part_with(arrived->from);
  }
  return arrived;
}

/// Once the goodbye and all frames before it are here.
void Link::part_with(int process) {
  const Exchanged& exchanged = exchanged_[static_cast<std::size_t>(process)];
  if (exchanged.before_goodbye && exchanged.received > *exchanged.before_goodbye)
    presence_->said_goodbye(process);
}

/// What the link itself is asked or told. False: it is for a run.
bool Link::answer(ArrivedFrame& arrived) {
  const FrameHead& head = arrived.frame.head;
  if (!is_of_link(head.kind)) return false;
  switch (head.kind) {
    case FrameKind::Hello:
      if (head.a == kMeasured) {
        ++measured_;
      } else {
        Unpacker unpacker(arrived.frame.note);
        ProcessSite& site = sites_[static_cast<std::size_t>(arrived.from)].emplace();
        site.pid = unpacker.get<int>();
        site.host = unpacker.get_text();
        site.machine = unpacker.get_text();
      }
      break;
    case FrameKind::Ping: {
      Frame pong = frame_of(FrameKind::Pong);
      pong.head.time_ns = local::steady_ns();
      send(arrived.from, std::move(pong));
      break;
    }
    case FrameKind::Pong:
      pong_there_ns_ = head.time_ns;
      break;
    default:  // Bye
      break;
  }
  return true;
}

std::optional<ArrivedFrame> Link::receive(std::uint32_t run) {
  std::erase_if(early_, [&](const auto& kept) { return kept.frame.head.run < run; });
  const auto kept = std::find_if(early_.begin(), early_.end(),
                                 [&](const auto& one) { return one.frame.head.run == run; });
  if (kept != early_.end()) {
    ArrivedFrame arrived = std::move(*kept);
    early_.erase(kept);
    return arrived;
  }
  while (auto arrived = receive_any()) {
    if (answer(*arrived) || arrived->frame.head.run < run) continue;
    if (arrived->frame.head.run == run) return arrived;
    early_.push_back(*std::move(arrived));
  }
  return std::nullopt;
}

bool Link::close() {
  if (closed_) return true;
  {
    const std::scoped_lock lock(mutex_);
    for (int p = 0; p < processes(); ++p) {
      if (p == process() || presence_->is_lost(p)) continue;
      Frame bye = frame_of(FrameKind::Bye);
      bye.head.a = exchanged_[static_cast<std::size_t>(p)].sent;
      send(p, std::move(bye));
    }
  }
  bool anybody_lost = false;
  const auto all_left = [&] {
    bool all = wire_->is_at_rest();
    for (int p = 0; p < processes(); ++p) {
      if (p == process()) continue;
      anybody_lost = anybody_lost || presence_->is_lost(p);
      all = all && presence_->has_left(p);
    }
    return all || anybody_lost;
  };
  receive_until(all_left, kForEver);
  if (anybody_lost) {
    // What we have told the living should reach them.
    receive_until([&] { return wire_->is_at_rest(); }, local::steady_ns() + kLastWordsNs);
    return false;
  }
  wire_->close();
  closed_ = true;
  return true;
}

}  // namespace pipewright::exec::mpi
