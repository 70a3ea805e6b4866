#include "exec/transports/process/link.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "core/base/error.hpp"
#include "exec/base/backoff.hpp"
#include "exec/base/waiting.hpp"

namespace pipewright::exec::mpi {
namespace {

constexpr int kPings = 500;
constexpr std::int64_t kForEver = std::numeric_limits<std::int64_t>::max();
// How often those who wait here look who is still there.
constexpr int kTurnsPerLook = 256;

// How long a process that leaves a broken job waits for its last frames to be sent.
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
      presence_(std::make_unique<Presence>(wire_->processes(), wire_->process())),
      sites_(static_cast<std::size_t>(wire_->processes())),
      exchanged_(sites_.size()),
      failures_(sites_.size()) {
  greet();
  signs_ = std::jthread([this](const std::stop_token& stop) { give_signs(stop); });
}

Link::~Link() = default;

template <class Done>
bool Link::receive_until(const Done& done, std::int64_t deadline_ns) {
  local::Backoff backoff;
  for (int turn = 1;; ++turn) {
    {
      const std::scoped_lock lock(mutex_);
      while (auto arrived = receive_any()) {
        if (!answer(*arrived)) others_.push_back(*std::move(arrived));
      }
      collect_sent();
      if (turn % kTurnsPerLook == 0) look_around();
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
  packer.put_text(sites_[own]->network);
  Frame hello = frame_of(FrameKind::Hello);
  hello.head.a = kSite;
  hello.note = packer.take();
  for (int p = 0; p < processes(); ++p) {
    if (p != process()) send(p, hello);
  }
  const auto all_here = [&] {
    return std::all_of(sites_.begin(), sites_.end(), [](const auto& site) { return !!site; });
  };
  wait_for_others(all_here, deadline);
  if (asks_kernel()) look_for_witnesses();
  if (process() != 0) {
    clock_ = measure_clock();
    Frame measured = frame_of(FrameKind::Hello);
    measured.head.a = kMeasured;
    const std::scoped_lock lock(mutex_);
    send(0, measured);
  } else {
    wait_for_others([&] { return measured_ == processes() - 1; }, deadline);
  }
}

/// While the job starts. Whoever leaves it tells the others why, so that all name the same one.
template <class Done>
void Link::wait_for_others(const Done& done, std::int64_t deadline_ns) {
  const auto is_interrupted = [&] {
    return options_.interrupted != nullptr && options_.interrupted->load();
  };
  const auto failed = [&] {
    return std::find_if(failures_.begin(), failures_.end(), [](const auto& one) { return !!one; });
  };
  const bool settled = receive_until(
      [&] {
        return done() || failed() != failures_.end() || presence_->first_lost() >= 0 ||
               is_interrupted();
      },
      deadline_ns);
  const std::scoped_lock lock(mutex_);
  if (settled && done()) return;
  const int lost = presence_->first_lost();
  if (failed() == failures_.end() && lost < 0) {
    if (is_interrupted())
      throw MachineError("the job was interrupted before its processes had met");
    const auto silent =
        std::find_if(sites_.begin(), sites_.end(), [](const auto& site) { return !site; });
    const std::string who =
        silent == sites_.end()
            ? "not all of them answer"
            : "rank " + std::to_string(silent - sites_.begin()) + " says nothing";
    throw MachineError("the processes of the job have not met in time: " + who);
  }
  const std::string why = failed() != failures_.end()
                              ? (*failed())->text
                              : "rank " + std::to_string(lost) + " is dead: its " +
                                    presence_->how_lost(lost) + " while the job started";
  say_failure({0, why});
  throw RunError(why);
}

Witnesses& Link::witnesses() {
  if (!witnesses_) witnesses_.emplace(sites_[static_cast<std::size_t>(process())]->network);
  return *witnesses_;
}

/// Invites the processes whose end no pidfd tells of (exec/transports/process/witness.hpp).
void Link::look_for_witnesses() {
  const std::scoped_lock lock(mutex_);
  for (int p = 0; p < processes(); ++p) {
    if (!presence_->is_out_of_sight(p)) continue;
    auto invitation = witnesses().invitation_for(p);
    if (!invitation) continue;
    Frame frame = frame_of(FrameKind::Witness);
    frame.note = *std::move(invitation);
    send(p, std::move(frame));
  }
}

void Link::look_around() {
  const std::int64_t now = local::steady_ns();
  if (witnesses_) {
    for (const Witnesses::Seen& one : witnesses_->look(now))
      presence_->see_by(one.process, one.descriptor);
  }
  presence_->look(now);
}

bool Link::are_on_one_machine(std::span<const int> processes) const {
  const auto site = [&](int process) { return sites_[static_cast<std::size_t>(process)]; };
  return std::all_of(processes.begin(), processes.end(), [&](int process) {
    return site(process)->machine == site(processes.front())->machine;
  });
}

void Link::give_up_silent(std::int64_t silence_ns) {
  presence_->give_up_silent(local::steady_ns(), std::max(silence_ns, options_.silence_ns));
}

/// To process 0, which judges for all, and from it to all.
void Link::give_signs(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const std::chrono::nanoseconds pause(options_.silence_ns / 8);
  while (!sign_due_.wait_for(lock, stop, pause, [&] { return stop.stop_requested(); })) {
    try {
      if (witnesses_) look_around();
      for (int p = 0; p < (process() == 0 ? processes() : 1); ++p) {
        if (p == process() || presence_->is_gone(p)) continue;
        send(p, frame_of(FrameKind::Alive));
      }
    } catch (const std::exception&) {
      return;  // the wire is broken: whoever uses it says so
    }
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
    const auto answered = [&] {
      return pong_there_ns_ || presence_->is_gone(0) || wire_->is_broken();
    };
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
    if (presence_->awaits_goodbye()) presence_->has_read_all(local::steady_ns());
    for (const int gone : wire_->take_gone()) presence_->connection_ended(gone);
    return arrived;
  }
  Exchanged& exchanged = exchanged_[static_cast<std::size_t>(arrived->from)];
  ++exchanged.received;
  if (arrived->frame.head.kind == FrameKind::Bye) exchanged.before_goodbye = arrived->frame.head.a;
  presence_->heard(arrived->from, local::steady_ns());
  part_with(arrived->from);
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
        site.network = unpacker.get_text();
        presence_->met(arrived.from, site, *sites_[static_cast<std::size_t>(process())],
                       asks_kernel());
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
    case FrameKind::Witness:
      witnesses().accept(arrived.frame.note);
      break;
    case FrameKind::Failure:
      failures_[static_cast<std::size_t>(arrived.from)] =
          Failure{static_cast<int>(head.a), Unpacker(arrived.frame.note).get_text()};
      break;
    default:  // Alive, Bye
      break;
  }
  return true;
}

// --- Runs ---

std::uint32_t Link::begin_run() {
  runs_.insert(next_run_);
  return next_run_++;
}

void Link::end_run(std::uint32_t run) {
  runs_.erase(run);
  std::erase_if(others_, [&](const auto& kept) { return kept.frame.head.run == run; });
  std::erase_if(sent_, [&](std::uint64_t token) { return token >> 32U == run; });
}

std::optional<ArrivedFrame> Link::receive(std::uint32_t run) {
  const auto kept = std::find_if(others_.begin(), others_.end(),
                                 [&](const auto& one) { return one.frame.head.run == run; });
  if (kept != others_.end()) {
    ArrivedFrame arrived = std::move(*kept);
    others_.erase(kept);
    return arrived;
  }
  while (auto arrived = receive_any()) {
    if (answer(*arrived)) continue;
    const std::uint32_t its_run = arrived->frame.head.run;
    if (its_run == run) return arrived;
    const bool is_over = its_run < next_run_ && !runs_.contains(its_run);
    if (!is_over) others_.push_back(*std::move(arrived));
  }
  return std::nullopt;
}

void Link::collect_sent() {
  for (const std::uint64_t token : wire_->take_sent()) {
    if (runs_.contains(static_cast<std::uint32_t>(token >> 32U))) sent_.push_back(token);
  }
}

std::vector<std::uint64_t> Link::take_sent(std::uint32_t run) {
  collect_sent();
  const auto own = std::stable_partition(sent_.begin(), sent_.end(),
                                         [&](std::uint64_t token) { return token >> 32U != run; });
  std::vector<std::uint64_t> tokens(own, sent_.end());
  sent_.erase(own, sent_.end());
  return tokens;
}

LinkRun::LinkRun(Link& link)
    : link_(link), number_([&] {
        const std::scoped_lock lock(link.mutex());
        return link.begin_run();
      }()) {}

LinkRun::~LinkRun() {
  const std::scoped_lock lock(link_.mutex());
  link_.end_run(number_);
}

// --- How it ends ---

void Link::say_failure(const Failure& failure) {
  Packer packer;
  packer.put_text(failure.text);
  Frame frame = frame_of(FrameKind::Failure);
  frame.head.a = static_cast<std::uint64_t>(failure.status);
  frame.note = packer.take();
  for (int p = 0; p < processes(); ++p) {
    if (p != process() && !presence_->is_gone(p)) send(p, frame);
  }
}

void Link::wait_for_failure(std::optional<int> process, std::int64_t timeout_ns) {
  const auto done = [&] {
    bool all_gone = true;
    for (int p = 0; p < processes(); ++p) {
      if (p == this->process() || p != process.value_or(p)) continue;
      if (failure_of(p)) return true;
      all_gone = all_gone && presence_->is_gone(p);
    }
    return all_gone || wire_->is_broken();
  };
  receive_until(done, local::steady_ns() + timeout_ns);
}

bool Link::close() {
  if (closed_) return true;
  signs_ = {};  // a goodbye is the last word
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
    return all || anybody_lost || wire_->is_broken();
  };
  try {
    receive_until(all_left, kForEver);
    if (anybody_lost || wire_->is_broken()) {
      // What we have told the living should reach them.
      receive_until([&] { return wire_->is_at_rest(); }, local::steady_ns() + kLastWordsNs);
      return false;
    }
  } catch (const RunError&) {
    return false;  // the wire has broken at the last moment, and no run needs it any more
  }
  wire_->close();
  closed_ = true;
  return true;
}

}  // namespace pipewright::exec::mpi
