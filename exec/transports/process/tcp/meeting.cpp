#include "exec/transports/process/tcp/meeting.hpp"

#include <sys/socket.h>

#include <optional>
#include <utility>

#include "core/base/error.hpp"
#include "exec/base/waiting.hpp"
#include "exec/transports/process/tcp/doorkeeper.hpp"
#include "exec/transports/process/tcp/knock.hpp"
#include "exec/transports/process/tcp/token.hpp"

namespace pipewright::exec::tcp {
namespace {

constexpr int kHostLooksMs = 100;
constexpr std::int64_t kAskAgainNs = 500'000'000;

std::string where(const JobPlace& place) { return address_text(place.host, place.port); }

// --- Process 0 ---

struct Seat {
  PackedBytes bytes;
  Entrance entrance;
};

/// Process 0's side of the meeting.
class Host {
 public:
  Host(const JobPlace& place, const PackedBytes& own, const RendezvousOptions& options)
      : place_(place), patience_(options), seats_(static_cast<std::size_t>(place.processes)) {
    seats_.front().bytes = own;
  }

  std::vector<PackedBytes> meet(const std::vector<Socket>& doors, const Block& key) {
    try {
      Doorkeeper keeper(doors, {key, 0});
      while (const auto missing = first_missing()) {
        patience_.require(missing_text(*missing, keeper.turned_away()));
        for (Guest& guest : keeper.let_in(kHostLooksMs)) seat(std::move(guest));
        require_all_stay();
      }
      return tell_all();
    } catch (const Error& error) {
      tell_failure(error.what());
      throw;
    }
  }

 private:
  std::optional<std::size_t> first_missing() const {
    for (std::size_t p = 1; p < seats_.size(); ++p) {
      if (!seats_[p].entrance.socket.is_open()) return p;
    }
    return std::nullopt;
  }

  static std::string missing_text(std::size_t process, int turned_away) {
    std::string text = "process " + std::to_string(process) + " has not come";
    if (turned_away > 0)
      text += " (" + std::to_string(turned_away) +
              " connections that did not know the job's token were turned away)";
    return text;
  }

  void seat(Guest guest) {
    const auto processes = static_cast<std::uint32_t>(place_.processes);
    if (guest.processes != processes || guest.process == 0 || guest.process >= processes)
      throw InputError("a process came to the job's rendezvous that says it is " +
                       std::to_string(guest.process) + " of " + std::to_string(guest.processes) +
                       "; this job has " + std::to_string(processes));
    Seat& seat = seats_[guest.process];
    if (seat.entrance.socket.is_open())
      throw InputError("two processes came to the job's rendezvous that both say they are " +
                       std::to_string(guest.process));
    seat = {std::move(guest.bytes), {std::move(guest.socket), guest.session}};
  }

  void require_all_stay() const {
    for (std::size_t p = 1; p < seats_.size(); ++p) {
      if (seats_[p].entrance.socket.is_open() && has_gone(seats_[p].entrance.socket)) gone(p);
    }
  }

  [[noreturn]] static void gone(std::size_t process) {
    throw MachineError("the processes of the job have not met: process " + std::to_string(process) +
                       " has come and closed its connection");
  }

  std::vector<PackedBytes> tell_all() const {
    Packer packer;
    packer.put<bool>(true);
    std::vector<PackedBytes> all;
    for (const Seat& seat : seats_) {
      packer.put_all(std::span<const std::byte>(seat.bytes));
      all.push_back(seat.bytes);
    }
    const PackedBytes answer = packer.take();
    for (std::size_t p = 1; p < seats_.size(); ++p) {
      const Entrance& guest = seats_[p].entrance;
      const PackedBytes said = sealed(guest.session, Speaker::Door, answer);
      if (!write_all(guest.socket, said.data(), said.size(), patience_,
                     "process " + std::to_string(p) + " does not listen"))
        gone(p);
    }
    return all;
  }

  /// Those who are here leave at once, and with the right reason.
  void tell_failure(const std::string& why) const {
    Packer packer;
    packer.put<bool>(false);
    packer.put_text(why);
    const PackedBytes answer = packer.take();
    for (const Seat& seat : seats_) {
      if (!seat.entrance.socket.is_open()) continue;
      const PackedBytes said = sealed(seat.entrance.session, Speaker::Door, answer);
      send(seat.entrance.socket.get(), said.data(), said.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
  }

  const JobPlace& place_;
  const Patience patience_;
  std::vector<Seat> seats_;  // by process
};

Met be_host(const JobPlace& place, const PackedBytes& own, const RendezvousOptions& options,
            const std::vector<Socket>& doors) {
  Host host(place, own, options);
  if (!place.token.empty()) {
    const Block key = key_of_token(place.token);
    return {host.meet(doors, key), key};
  }
  const OwnToken token(own_token_path(place.host, place.port));
  return {host.meet(doors, token.key()), token.key()};
}

// --- The others ---

/// Where the token is, is asked again at each try: an earlier job may have left one.
DoorTo door_of_host(const JobPlace& place, Block& key) {
  DoorTo door{.host = place.host, .port = place.port, .owner = 0, .may_refuse = true};
  if (!place.token.empty()) {
    key = key_of_token(place.token);
    door.key = [&key] { return key; };
    return door;
  }
  const std::filesystem::path path = own_token_path(place.host, place.port);
  door.key = [&key, path] {
    const auto left = left_token(path);
    if (left) key = *left;
    return left;
  };
  door.why_no_key = "it has left no token at " + path.string() +
                    " (containers that do not share that folder need a PIPEWRIGHT_TOKEN)";
  return door;
}

Met be_guest(const JobPlace& place, const PackedBytes& own, const RendezvousOptions& options) {
  const Patience patience(options);
  Met met;
  const Entrance entrance =
      knock(door_of_host(place, met.key), {place.process, place.processes, own}, patience);
  const PackedBytes answer =
      read_sealed(entrance, Speaker::Door, patience, "the others have not come to " + where(place),
                  "process 0 at " + where(place) + " has closed its connection");
  Unpacker unpacker(answer);
  if (!unpacker.get<bool>()) throw MachineError(unpacker.get_text());
  for (int p = 0; p < place.processes; ++p) met.all.push_back(unpacker.get_all<std::byte>());
  return met;
}

}  // namespace

Addresses meeting_place(const JobPlace& place, const Patience& patience) {
  while (true) {
    try {
      Addresses addresses = addresses_of(place.host, place.port);
      if (place.token.empty() && !is_loopback(addresses))
        throw InputError("the job's processes meet at " + where(place) +
                         ", where strangers can knock too, so they need a token that only they "
                         "know: " +
                         how_to_make_token());
      return addresses;
    } catch (const MachineError& error) {
      if (place.token.empty()) throw;  // a name of the loopback is known from the beginning
      patience.require(error.what());
      local::sleep_until_steady(local::steady_ns() + kAskAgainNs);
    }
  }
}

std::vector<Socket> meeting_doors(const JobPlace& place, const Patience& patience) {
  Addresses addresses = meeting_place(place, patience);
  if (place.listen.empty()) return listen_at(addresses, place.host, place.port);
  addresses = addresses_of(place.listen, place.port);
  if (place.token.empty() && !is_loopback(addresses))
    throw InputError(
        "PIPEWRIGHT_LISTEN: strangers can knock at " + place.listen +
        " too, so the job's processes need a token that only they know: " + how_to_make_token());
  return listen_at(addresses, place.listen, place.port);
}

Met meet_by_tcp(const JobPlace& place, const PackedBytes& own, const RendezvousOptions& options,
                const std::vector<Socket>& doors) {
  return place.process == 0 ? be_host(place, own, options, doors) : be_guest(place, own, options);
}

}  // namespace pipewright::exec::tcp
