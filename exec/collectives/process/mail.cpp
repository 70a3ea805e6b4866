#include "exec/collectives/process/mail.hpp"

#include <utility>

#include "core/base/error.hpp"
#include "exec/base/backoff.hpp"
#include "exec/transports/process/all_gather.hpp"

namespace pipewright::exec::collectives {
namespace {

// Letters that a process may have under way before it waits.
constexpr std::size_t kMostOnTheirWay = 32;
constexpr int kMailTurnsPerLook = 64;

/// FrameHead::unused of a letter.
enum class Mark : std::uint8_t { Fine, NotFine, GivesUp, Leaves };

mpi::Frame frame_of(const mpi::LinkRun& run, std::uint32_t group, Mark mark) {
  mpi::Frame frame;
  frame.head.kind = mpi::FrameKind::Part;
  frame.head.run = run.number();
  frame.head.id = group;
  frame.head.unused = static_cast<std::uint8_t>(mark);
  frame.token = run.token(0);
  return frame;
}

}  // namespace

Mail::Mail(mpi::Link& link) : link_(link), run_(link) {}

std::uint32_t Mail::open_group(Look look) {
  looks_.push_back(std::move(look));
  return static_cast<std::uint32_t>(looks_.size() - 1);
}

/// Takes what has come until it is enough; whether anything has. The caller holds the lock.
template <class Done>
bool Mail::hear(std::uint32_t group, const Done& done) {
  bool heard = false;
  while (!done()) {
    auto arrived = link_.receive(run_.number());
    if (!arrived) break;
    file(*std::move(arrived));
    heard = true;
  }
  on_their_way_ -= link_.take_sent(run_.number()).size();
  // A wire drops what was for somebody who is gone, and does not say that it has left.
  if (link_.wire().is_at_rest()) on_their_way_ = 0;
  if (link_.wire().is_broken()) throw RunError("the wire between the processes is broken");
  if (const auto found = given_up_.find(group); found != given_up_.end())
    throw RunError(found->second);
  return heard;
}

/// Each turn takes what has come, lets go on what is half sent, and looks who is there.
template <class Done, class Look>
void Mail::wait_until(std::uint32_t group, const Done& done, const Look& look) {
  local::Backoff backoff;
  for (int turn = 1;; ++turn) {
    bool heard = false;
    {
      const std::scoped_lock lock(link_.mutex());
      heard = hear(group, done);
      if (done()) return;
      if (turn % kMailTurnsPerLook == 0) link_.look_around();
      if (!looks_[group]) look();
    }
    if (looks_[group]) looks_[group]();
    if (heard)
      backoff = {};
    else
      backoff.pause();
  }
}

void Mail::advance(std::uint32_t group) {
  {
    const std::scoped_lock lock(link_.mutex());
    hear(group, [] { return false; });
    if (++turns_ % kMailTurnsPerLook == 0) link_.look_around();
  }
  require_all_present();
}

void Mail::require_all_present() {
  const std::scoped_lock lock(link_.mutex());
  for (int process = 0; process < link_.processes(); ++process) {
    if (process != link_.process()) mpi::require_present(link_, process);
  }
}

void Mail::file(mpi::ArrivedFrame arrived) {
  const mpi::FrameHead& head = arrived.frame.head;
  if (closed_.contains(head.id)) return;
  switch (static_cast<Mark>(head.unused)) {
    case Mark::GivesUp:
      given_up_.try_emplace(head.id, Unpacker(arrived.frame.note).get_text());
      return;
    case Mark::Leaves:
      last_of_[{head.id, arrived.from}] = head.a;
      return;
    case Mark::Fine:
    case Mark::NotFine:
      letters_[{head.id, arrived.from, head.a}] = {std::move(arrived.frame.note), head.b,
                                                   static_cast<Mark>(head.unused) == Mark::Fine};
  }
}

void Mail::send(std::uint32_t group, int to, std::uint64_t number, Letter letter) {
  const auto has_room = [&] { return on_their_way_ < kMostOnTheirWay; };
  wait_until(group, has_room, [&] { mpi::require_present(link_, to); });
  mpi::Frame frame = frame_of(run_, group, letter.fine ? Mark::Fine : Mark::NotFine);
  frame.head.a = number;
  frame.head.b = letter.whole;
  frame.note = std::move(letter.bytes);
  const std::scoped_lock lock(link_.mutex());
  ++on_their_way_;
  link_.send(to, std::move(frame));
}

Letter Mail::receive(std::uint32_t group, int from, std::uint64_t number) {
  const Key key{group, from, number};
  wait_until(
      group, [&] { return letters_.contains(key); },
      [&] {
        if (const auto last = last_of_.find({group, from});
            last != last_of_.end() && number >= last->second)
          throw RunError("a member of the group, process " + std::to_string(from) +
                         ", has left it");
        mpi::require_present(link_, from);
      });
  const std::scoped_lock lock(link_.mutex());
  return std::move(letters_.extract(key).mapped());
}

void Mail::flush(std::uint32_t group) {
  wait_until(
      group, [&] { return on_their_way_ == 0; }, [] {});
}

void Mail::give_up(std::uint32_t group, std::span<const int> to, const std::string& why) noexcept {
  try {
    const std::scoped_lock lock(link_.mutex());
    given_up_.try_emplace(group, why);
    tell(group, to);
  } catch (const std::exception&) {
    return;  // the wire is broken: the others see it by themselves
  }
}

/// Whoever has heard of it says so, too, before it goes: else somebody might see that it is gone
/// before hearing why.
void Mail::tell(std::uint32_t group, std::span<const int> to) {
  if (!told_.insert(group).second) return;
  Packer packer;
  packer.put_text(given_up_.at(group));
  mpi::Frame frame = frame_of(run_, group, Mark::GivesUp);
  frame.token = mpi::kNoToken;
  frame.note = packer.take();
  for (const int process : to) {
    if (process != link_.process() && !link_.presence().is_gone(process))
      link_.send(process, frame);
  }
}

void Mail::close_group(std::uint32_t group, std::span<const int> to,
                       std::span<const std::uint64_t> sent) noexcept {
  try {
    const std::scoped_lock lock(link_.mutex());
    closed_.insert(group);
    std::erase_if(letters_, [&](const auto& one) { return std::get<0>(one.first) == group; });
    if (given_up_.contains(group)) return tell(group, to);
    for (std::size_t m = 0; m < to.size(); ++m) {
      if (to[m] == link_.process() || link_.presence().is_gone(to[m])) continue;
      mpi::Frame frame = frame_of(run_, group, Mark::Leaves);
      frame.token = mpi::kNoToken;
      frame.head.a = sent[m];
      link_.send(to[m], std::move(frame));
    }
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace pipewright::exec::collectives
