#include "exec/transports/process/tcp/socket.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/error.hpp"
#include "exec/base/waiting.hpp"

namespace pipewright::exec::tcp {
namespace {

Socket open_for(const addrinfo& address) {
  return Socket(::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                         address.ai_protocol));
}

const in6_addr& v6_of(const addrinfo& address) {
  return reinterpret_cast<const sockaddr_in6*>(address.ai_addr)->sin6_addr;
}
std::uint32_t v4_of(const addrinfo& address) {
  return ntohl(reinterpret_cast<const sockaddr_in*>(address.ai_addr)->sin_addr.s_addr);
}

bool is_loopback(const addrinfo& address) {
  constexpr std::uint32_t kNet = 127, kShift = 24;
  if (address.ai_family == AF_INET) return v4_of(address) >> kShift == kNet;
  const in6_addr& v6 = v6_of(address);
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == kNet);
}

bool is_wildcard(const addrinfo& address) {
  if (address.ai_family == AF_INET) return v4_of(address) == INADDR_ANY;
  const in6_addr& v6 = v6_of(address);
  return IN6_IS_ADDR_UNSPECIFIED(&v6);
}

template <class Predicate>
bool all_of(const Addresses& addresses, Predicate holds) {
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    if (!holds(*one)) return false;
  }
  return true;
}

/// /etc/hosts may say the same twice.
bool is_earlier_in(const Addresses& addresses, const addrinfo& address) {
  for (const addrinfo* one = addresses.get(); one != &address; one = one->ai_next) {
    if (one->ai_addrlen == address.ai_addrlen &&
        std::memcmp(one->ai_addr, address.ai_addr, address.ai_addrlen) == 0)
      return true;
  }
  return false;
}

/// What `errno` says; 0: it listens.
int listen_on(const addrinfo& address, const Socket& socket) {
  const int yes = 1, no = 0;
  if (address.ai_family == AF_INET6 && is_wildcard(address))  // guests of both kinds
    setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  const bool listens = socket.is_open() &&
                       setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                       bind(socket.get(), address.ai_addr, address.ai_addrlen) == 0 &&
                       listen(socket.get(), SOMAXCONN) == 0;
  return listens ? 0 : errno;
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::string address_text(const std::string& host, int port) {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Addresses addresses_of(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failed != 0)
    throw MachineError("the host " + host +
                       " of the job's rendezvous is not known: " + gai_strerror(failed));
  return {found, freeaddrinfo};
}

bool is_loopback(const Addresses& addresses) {
  return all_of(addresses, [](const addrinfo& one) { return is_loopback(one); });
}

bool is_wildcard(const Addresses& addresses) {
  return all_of(addresses, [](const addrinfo& one) { return is_wildcard(one); });
}

std::vector<Socket> listen_at(const Addresses& addresses, const std::string& host, int port) {
  std::vector<Socket> doors;
  int why = EADDRNOTAVAIL;
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    if (is_earlier_in(addresses, *one)) continue;
    Socket socket = open_for(*one);
    const int failed = listen_on(*one, socket);
    if (failed == 0) {
      doors.push_back(std::move(socket));
    } else if (failed != EADDRNOTAVAIL && failed != EAFNOSUPPORT) {
      why = failed;
      doors.clear();
      break;
    }
  }
  if (!doors.empty()) return doors;
  throw MachineError("a process of the job cannot listen on port " + std::to_string(port) + " of " +
                     host + ": " + std::strerror(why) +
                     (why == EADDRNOTAVAIL ? "; if the others reach this host by an address that "
                                             "is not its own, set PIPEWRIGHT_LISTEN to one that "
                                             "is"
                                           : ""));
}

int port_of(const Socket& listening) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(listening.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::optional<Socket> connect_to(const Addresses& addresses, std::int64_t until_ns) {
  constexpr std::int64_t kNsInMs = 1'000'000;
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    Socket socket = open_for(*one);
    if (!socket.is_open()) continue;
    if (connect(socket.get(), one->ai_addr, one->ai_addrlen) == 0) return socket;
    const std::int64_t left = until_ns - local::steady_ns();
    pollfd connecting{socket.get(), POLLOUT, 0};
    int failed = 0;
    socklen_t size = sizeof failed;
    if (errno == EINPROGRESS && left > 0 &&
        poll(&connecting, 1, static_cast<int>(left / kNsInMs)) > 0 &&
        getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &failed, &size) == 0 && failed == 0)
      return socket;
  }
  return std::nullopt;
}

bool has_gone(const Socket& socket) {
  std::byte next{};
  const ssize_t got = recv(socket.get(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

std::string own_address_towards(const Addresses& addresses) {
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    // A datagram socket that is connected sends nothing: it only learns its route.
    const Socket socket(::socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    auto* own = reinterpret_cast<sockaddr*>(&address);
    char text[NI_MAXHOST] = "";
    if (socket.is_open() && connect(socket.get(), one->ai_addr, one->ai_addrlen) == 0 &&
        getsockname(socket.get(), own, &size) == 0 &&
        getnameinfo(own, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
      return text;
  }
  return {};
}

}  // namespace pipewright::exec::tcp
