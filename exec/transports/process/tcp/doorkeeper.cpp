#include "exec/transports/process/tcp/doorkeeper.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "exec/base/waiting.hpp"

namespace pipewright::exec::tcp {
namespace {

/// One who has not proved himself by then is sent away; one of ours knocks again.
constexpr std::int64_t kProveWithinNs = 5'000'000'000;
/// More than these are not heard at once: the oldest has to go, who has had the longest time.
constexpr std::size_t kMostVisitors = 128;
constexpr int kMostNewOnes = 64;  // in one turn
constexpr std::int64_t kNoDescriptorNs = 5'000'000;

/// A few bytes into a connection that is new: they go at once, or he does.
template <class T>
bool tell(const Socket& socket, const T& message) {
  return ::send(socket.get(), &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof message);
}

template <class T>
T read_as(const PackedBytes& bytes) {
  T value;
  std::memcpy(static_cast<void*>(&value), bytes.data(), sizeof value);
  return value;
}

}  // namespace

Doorkeeper::Doorkeeper(std::span<const Socket> doors, const Lock& lock)
    : doors_(doors), lock_(lock) {}

std::vector<Guest> Doorkeeper::let_in(int wait_ms) {
  std::vector<pollfd> polled;
  for (const Socket& door : doors_) polled.push_back({door.get(), POLLIN, 0});
  for (const Visitor& visitor : visitors_) polled.push_back({visitor.socket.get(), POLLIN, 0});
  std::vector<Guest> guests;
  if (poll(polled.data(), polled.size(), wait_ms) < 0) return guests;
  const std::int64_t now = local::steady_ns();
  std::deque<Visitor> staying;
  for (std::size_t i = 0; i < visitors_.size(); ++i) {
    Visitor& visitor = visitors_[i];
    const bool has_said = polled[doors_.size() + i].revents != 0;
    const bool is_late = visitor.stage == Stage::Claim && now > visitor.deadline_ns;
    const bool stays = has_said ? hear(visitor) : !is_late;
    if (!stays) {
      ++turned_away_;
    } else if (auto guest = guest_of(visitor)) {
      guests.push_back(*std::move(guest));
    } else {
      staying.push_back(std::move(visitor));
    }
  }
  visitors_ = std::move(staying);
  for (std::size_t i = 0; i < doors_.size(); ++i) {
    if (polled[i].revents != 0) greet_new(doors_[i]);
  }
  return guests;
}

void Doorkeeper::greet_new(const Socket& door) {
  for (int i = 0; i < kMostNewOnes; ++i) {
    make_room();
    Socket socket(accept4(door.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.is_open()) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) continue;
      // No descriptor is left: the oldest visitor's is one.
      local::sleep_until_steady(local::steady_ns() + kNoDescriptorNs);
      if (visitors_.empty()) return;
      visitors_.pop_front();
      ++turned_away_;
      continue;
    }
    Visitor visitor{.socket = std::move(socket),
                    .challenge = random_block(),
                    .deadline_ns = local::steady_ns() + kProveWithinNs};
    if (tell(visitor.socket, Greeting{kMagic, visitor.challenge}))
      visitors_.push_back(std::move(visitor));
    else
      ++turned_away_;
  }
}

void Doorkeeper::make_room() {
  const auto is_stranger = [](const Visitor& visitor) { return visitor.stage == Stage::Claim; };
  if (std::count_if(visitors_.begin(), visitors_.end(), is_stranger) <
      static_cast<std::ptrdiff_t>(kMostVisitors))
    return;
  visitors_.erase(std::find_if(visitors_.begin(), visitors_.end(), is_stranger));
  ++turned_away_;
}

bool Doorkeeper::hear(Visitor& visitor) {
  std::array<std::byte, 1U << 16U> heard;
  while (visitor.got.size() < visitor.wanted) {
    const std::size_t room = std::min(heard.size(), visitor.wanted - visitor.got.size());
    const ssize_t count = recv(visitor.socket.get(), heard.data(), room, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (count == 0) return false;
    visitor.got.insert(visitor.got.end(), heard.begin(), heard.begin() + count);
    if (visitor.stage == Stage::Claim && visitor.got.size() >= sizeof kMagic &&
        read_as<std::uint64_t>(visitor.got) != kMagic)
      return false;
    if (visitor.got.size() == visitor.wanted && !go_on(visitor)) return false;
  }
  return true;
}

/// From one stage to the next, with all of it heard.
bool Doorkeeper::go_on(Visitor& visitor) {
  if (visitor.stage == Stage::Claim) return answer_claim(visitor);
  if (visitor.stage == Stage::Sealed) {
    const Block seal = read_as<Block>({visitor.got.end() - sizeof(Block), visitor.got.end()});
    const auto bytes = std::span(visitor.got).first(visitor.got.size() - sizeof(Block));
    return is_same(seal, seal_of_bytes(visitor.session, Speaker::Knocker, bytes));
  }
  const auto length = read_as<std::uint64_t>(visitor.got);
  if (length > kMostSealedBytes) return false;
  visitor.got.clear();
  visitor.stage = Stage::Sealed;
  visitor.wanted = length + sizeof(Block);
  return true;
}

bool Doorkeeper::answer_claim(Visitor& visitor) {
  visitor.claim = read_as<Claim>(visitor.got);
  if (!is_same(visitor.claim.proof, knockers_proof(lock_, visitor.claim, visitor.challenge))) {
    tell(visitor.socket, Welcome{Answer::WrongToken, {}});
    return false;
  }
  visitor.session = session_key(lock_, visitor.claim, visitor.challenge);
  visitor.got.clear();
  visitor.stage = Stage::Length;
  visitor.wanted = sizeof(std::uint64_t);
  return tell(visitor.socket,
              Welcome{Answer::Welcome, doors_proof(lock_, visitor.claim, visitor.challenge)});
}

/// Nothing yet where he has more to say.
std::optional<Guest> Doorkeeper::guest_of(Visitor& visitor) {
  if (visitor.stage != Stage::Sealed || visitor.got.size() < visitor.wanted) return std::nullopt;
  visitor.got.resize(visitor.got.size() - sizeof(Block));
  return Guest{visitor.claim.process, visitor.claim.processes, std::move(visitor.got),
               visitor.session, std::move(visitor.socket)};
}

}  // namespace pipewright::exec::tcp
