#include "exec/tcp/meeting.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <optional>
#include <utility>

#include "core/error.hpp"
#include "exec/local/waiting.hpp"
#include "exec/tcp/socket.hpp"

namespace pipewright::exec::tcp {
namespace {

constexpr std::int64_t kMeetAgainNs = 50'000'000;
constexpr std::uint64_t kMagic = 0x7069'7065'7772'0001;  // "pipewr", 1
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

/// What a process says of itself, before its bytes.
struct Hello {
  std::uint64_t magic = kMagic;
  std::uint32_t process = 0, processes = 0;
  std::uint64_t bytes = 0;
};

std::string first_missing(const std::vector<Socket>& guests) {
  for (std::size_t p = 1; p < guests.size(); ++p) {
    if (!guests[p].is_open()) return "process " + std::to_string(p) + " has not come";
  }
  return "a process has not come";
}

/// Who knocks and is none of ours is sent away.
void let_in(const Socket& door, const JobPlace& place, const Patience& patience,
            std::vector<Socket>& guests, std::vector<Bytes>& all) {
  const std::string missing = first_missing(guests);
  patience.wait_for(door, POLLIN, missing);
  Socket guest(accept(door.get(), nullptr, nullptr));
  Hello hello;
  if (!guest.is_open() || !read_all(guest, &hello, sizeof hello, patience, missing)) return;
  const auto processes = static_cast<std::uint32_t>(place.processes);
  if (hello.magic != kMagic || hello.bytes > kMostBytes) return;
  if (hello.processes != processes || hello.process == 0 || hello.process >= processes)
    throw InputError("a process came to the job's rendezvous that says it is " +
                     std::to_string(hello.process) + " of " + std::to_string(hello.processes) +
                     "; this job has " + std::to_string(processes));
  if (guests[hello.process].is_open())
    throw InputError("two processes came to the job's rendezvous that both say they are " +
                     std::to_string(hello.process));
  Bytes bytes(hello.bytes);
  if (!read_all(guest, bytes.data(), bytes.size(), patience, missing)) return;
  all[hello.process] = std::move(bytes);
  guests[hello.process] = std::move(guest);
}

std::vector<Bytes> be_host(const JobPlace& place, const Bytes& own,
                           const RendezvousOptions& options) {
  const Patience patience(options);
  const Socket door = listen_at(place.port);
  std::vector<Socket> guests(static_cast<std::size_t>(place.processes));
  std::vector<Bytes> all(guests.size());
  all[0] = own;
  const auto all_here = [&] {
    for (std::size_t p = 1; p < guests.size(); ++p) {
      if (!guests[p].is_open()) return false;
    }
    return true;
  };
  while (!all_here()) let_in(door, place, patience, guests, all);
  Packer packer;
  for (const Bytes& one : all) packer.put_all(std::span<const std::byte>(one));
  const Bytes answer = packer.take();
  const std::uint64_t size = answer.size();
  for (std::size_t p = 1; p < guests.size(); ++p) {
    const std::string gone = "process " + std::to_string(p) + " has gone again";
    if (!write_all(guests[p], &size, sizeof size, patience, gone) ||
        !write_all(guests[p], answer.data(), answer.size(), patience, gone))
      throw MachineError("the processes of the job have not met: " + gone);
  }
  return all;
}

std::vector<Bytes> be_guest(const JobPlace& place, const Bytes& own,
                            const RendezvousOptions& options) {
  const Patience patience(options);
  const std::string where = place.host + ":" + std::to_string(place.port);
  const std::string silent = "process 0 does not answer at " + where;
  const Addresses addresses = addresses_of(place.host, place.port);
  std::optional<Socket> host;
  while (!(host = connect_to(addresses))) {
    patience.require(silent);
    local::sleep_until_steady(local::steady_ns() + kMeetAgainNs);
  }
  const Hello hello{kMagic, static_cast<std::uint32_t>(place.process),
                    static_cast<std::uint32_t>(place.processes), own.size()};
  std::uint64_t size = 0;
  if (!write_all(*host, &hello, sizeof hello, patience, silent) ||
      !write_all(*host, own.data(), own.size(), patience, silent) ||
      !read_all(*host, &size, sizeof size, patience, silent))
    throw MachineError("the processes of the job have not met: process 0 at " + where +
                       " has sent this one away; is its port another program's?");
  Bytes answer(std::min<std::uint64_t>(size, kMostBytes));
  if (!read_all(*host, answer.data(), answer.size(), patience, silent))
    throw MachineError("the processes of the job have not met: " + silent);
  Unpacker unpacker(answer);
  std::vector<Bytes> all;
  for (int p = 0; p < place.processes; ++p) all.push_back(unpacker.get_all<std::byte>());
  return all;
}

}  // namespace

std::vector<Bytes> meet_by_tcp(const JobPlace& place, const Bytes& own,
                               const RendezvousOptions& options) {
  return place.process == 0 ? be_host(place, own, options) : be_guest(place, own, options);
}

}  // namespace pipewright::exec::tcp
