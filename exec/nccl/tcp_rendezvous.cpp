#include "exec/nccl/tcp_rendezvous.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "exec/local/waiting.hpp"

namespace pipewright::exec::nccl {
namespace {

constexpr int kLookMs = 100;
constexpr std::int64_t kKnockAgainNs = 50'000'000;
constexpr std::uint64_t kMagic = 0x7069'7065'7772'0001;  // "pipewr", 1
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  ~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int get() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

/// What a process says of itself, before its bytes.
struct Hello {
  std::uint64_t magic = kMagic;
  std::uint32_t process = 0, processes = 0;
  std::uint64_t bytes = 0;
};

/// One side of the meeting: its patience.
class Patience {
 public:
  explicit Patience(const RendezvousOptions& options)
      : options_(options), deadline_(local::steady_ns() + options.timeout_ns) {}

  void require(const std::string& what) const { require_patience(options_, deadline_, what); }
  /// Until the descriptor can be read, or written.
  void wait_for(int descriptor, short events, const std::string& what) const {
    while (true) {
      pollfd one{descriptor, events, 0};
      if (poll(&one, 1, kLookMs) > 0) return;
      require(what);
    }
  }

 private:
  const RendezvousOptions& options_;
  const std::int64_t deadline_;
};

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses addresses_of(const JobPlace& place, bool listens) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = listens ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(listens ? nullptr : place.host.c_str(),
                                 std::to_string(place.port).c_str(), &hints, &found);
  if (failed != 0)
    throw MachineError("the host " + place.host +
                       " of the job's rendezvous is not known: " + gai_strerror(failed));
  return {found, freeaddrinfo};
}

Socket listen_at(const JobPlace& place) {
  const Addresses addresses = addresses_of(place, true);
  std::string why = "no address";
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    Socket socket(::socket(one->ai_family, one->ai_socktype, one->ai_protocol));
    const int yes = 1;
    if (socket.is_open() &&
        setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        bind(socket.get(), one->ai_addr, one->ai_addrlen) == 0 &&
        listen(socket.get(), SOMAXCONN) == 0)
      return socket;
    why = std::strerror(errno);
  }
  throw MachineError("process 0 of the job cannot listen on port " + std::to_string(place.port) +
                     ": " + why);
}

std::optional<Socket> knock(const Addresses& addresses) {
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    Socket socket(::socket(one->ai_family, one->ai_socktype, one->ai_protocol));
    if (socket.is_open() && connect(socket.get(), one->ai_addr, one->ai_addrlen) == 0)
      return socket;
  }
  return std::nullopt;
}

bool read_all(const Socket& socket, void* to, std::size_t bytes, const Patience& patience,
              const std::string& what) {
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    patience.wait_for(socket.get(), POLLIN, what);
    const ssize_t got = recv(socket.get(), at, bytes, 0);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

bool write_all(const Socket& socket, const void* from, std::size_t bytes, const Patience& patience,
               const std::string& what) {
  const auto* at = static_cast<const std::byte*>(from);
  while (bytes > 0) {
    patience.wait_for(socket.get(), POLLOUT, what);
    const ssize_t put = send(socket.get(), at, bytes, MSG_NOSIGNAL);
    if (put <= 0) return false;
    at += put;
    bytes -= static_cast<std::size_t>(put);
  }
  return true;
}

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
  patience.wait_for(door.get(), POLLIN, missing);
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
  const Socket door = listen_at(place);
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
  const Addresses addresses = addresses_of(place, false);
  std::optional<Socket> host;
  while (!(host = knock(addresses))) {
    patience.require(silent);
    local::sleep_until_steady(local::steady_ns() + kKnockAgainNs);
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

}  // namespace pipewright::exec::nccl
