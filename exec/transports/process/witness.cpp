#include "exec/transports/process/witness.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <random>

namespace pipewright::exec::mpi {
namespace {

constexpr std::size_t kMostGuests = 64;
constexpr std::int64_t kGuestNs = 10'000'000'000;  // until it has said its number
constexpr int kMostKnocks = 16;                    // let in at one look

/// Where others may reach this process, but by the loopback.
std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return addresses;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const int family = one->ifa_addr->sa_family;
    if ((one->ifa_flags & IFF_UP) == 0 || (family != AF_INET && family != AF_INET6)) continue;
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr);
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) continue;
    char text[NI_MAXHOST] = "";
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(one->ifa_addr, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
      addresses.emplace_back(text);
  }
  freeifaddrs(all);
  return addresses;
}

int open_socket(int family) {
  return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/// A socket of IPv6 takes guests of both kinds, where there is IPv6.
int listening_socket() {
  for (const int family : {AF_INET6, AF_INET}) {
    const int door = open_socket(family);
    if (door < 0) continue;
    const int no = 0;
    if (family == AF_INET6) setsockopt(door, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    sockaddr_in6 any{};
    any.sin6_family = static_cast<sa_family_t>(family);  // port and address 0 in either family
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (bind(door, reinterpret_cast<const sockaddr*>(&any), size) == 0 &&
        listen(door, SOMAXCONN) == 0)
      return door;
    close(door);
  }
  return -1;
}

int port_of(int door) {
  sockaddr_in6 own{};  // the port stands where IPv4 has it
  socklen_t size = sizeof own;
  const bool known = getsockname(door, reinterpret_cast<sockaddr*>(&own), &size) == 0;
  return known ? ntohs(own.sin6_port) : 0;
}

}  // namespace

Witnesses::~Witnesses() {
  if (door_ >= 0) close(door_);
  for (const Guest& guest : guests_) close(guest.descriptor);
  for (const Connecting& one : connecting_) close(one.descriptor);
}

bool Witnesses::open_door() {
  if (door_ >= 0) return true;
  door_ = listening_socket();
  if (door_ < 0) return false;
  port_ = port_of(door_);
  addresses_ = own_addresses();
  return true;
}

std::optional<PackedBytes> Witnesses::invitation_for(int process) {
  if (!open_door()) return std::nullopt;
  std::random_device chance;
  const auto half = [&] { return std::uint64_t{chance()} << 32U | chance(); };
  const Number number{half(), half()};
  invited_.push_back({process, number});
  Packer packer;
  packer.put<Number>(number);
  packer.put_text(network_);
  packer.put<int>(port_);
  packer.put<std::uint64_t>(addresses_.size());
  for (const std::string& address : addresses_) packer.put_text(address);
  return packer.take();
}

void Witnesses::accept(const PackedBytes& invitation) {
  Unpacker unpacker(invitation);
  const auto number = unpacker.get<Number>();
  const bool one_loopback = unpacker.get_text() == network_;
  const int port = unpacker.get<int>();
  if (one_loopback) return knock("127.0.0.1", port, number);
  const auto count = unpacker.get<std::uint64_t>();
  for (std::uint64_t i = 0; i < count; ++i) knock(unpacker.get_text(), port, number);
}

/// All addresses at once: which of them lead to the other process nobody knows.
void Witnesses::knock(const std::string& address, int port, const Number& number) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return;
  const int descriptor = open_socket(found->ai_family);
  if (descriptor >= 0) {
    static_cast<void>(connect(descriptor, found->ai_addr, found->ai_addrlen));
    connecting_.push_back({descriptor, number, false});
  }
  freeaddrinfo(found);
}

void Witnesses::let_in(std::int64_t now) {
  for (int i = 0; i < kMostKnocks && door_ >= 0; ++i) {
    const int guest = accept4(door_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (guest < 0) return;
    if (guests_.size() >= kMostGuests) {
      close(guests_.front().descriptor);
      guests_.erase(guests_.begin());
    }
    guests_.push_back({guest, now});
  }
}

/// Nobody is invited twice, so a number that somebody has overheard is worth nothing afterwards.
std::optional<Witnesses::Seen> Witnesses::recognise(const Guest& guest) {
  Number number{};
  if (recv(guest.descriptor, number.data(), sizeof number, MSG_DONTWAIT) !=
      static_cast<ssize_t>(sizeof number))
    return std::nullopt;
  const auto found = std::find_if(invited_.begin(), invited_.end(),
                                  [&](const auto& one) { return one.number == number; });
  if (found == invited_.end()) return std::nullopt;
  const Seen seen{found->process, guest.descriptor};
  invited_.erase(found);
  return seen;
}

std::vector<Witnesses::Seen> Witnesses::look(std::int64_t now) {
  for (Connecting& one : connecting_) {
    pollfd ready{one.descriptor, POLLOUT, 0};
    if (one.has_written || poll(&ready, 1, 0) <= 0) continue;
    one.has_written = true;  // or there is nobody
    static_cast<void>(send(one.descriptor, one.number.data(), sizeof one.number, MSG_NOSIGNAL));
  }
  std::vector<Seen> seen;
  if (door_ < 0) return seen;
  let_in(now);
  std::erase_if(guests_, [&](const Guest& guest) {
    pollfd ready{guest.descriptor, POLLIN, 0};
    if (poll(&ready, 1, 0) <= 0 && now - guest.since_ns < kGuestNs) return false;
    if (const auto one = recognise(guest)) {
      seen.push_back(*one);
    } else {
      close(guest.descriptor);
    }
    return true;
  });
  if (invited_.empty() && guests_.empty()) close(std::exchange(door_, -1));
  return seen;
}

}  // namespace pipewright::exec::mpi
