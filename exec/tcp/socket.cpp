#include "exec/tcp/socket.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.hpp"

namespace pipewright::exec::tcp {
namespace {

/// `host` null: what one can listen on.
Addresses look_up(const char* host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = host == nullptr ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(host, std::to_string(port).c_str(), &hints, &found);
  if (failed != 0)
    throw MachineError("the host " + std::string(host == nullptr ? "of this process" : host) +
                       " of the job's rendezvous is not known: " + gai_strerror(failed));
  return {found, freeaddrinfo};
}

Socket open_for(const addrinfo& address) {
  return Socket(
      ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol));
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) close(descriptor_);
}

Addresses addresses_of(const std::string& host, int port) { return look_up(host.c_str(), port); }

Socket listen_at(int port) {
  const Addresses addresses = look_up(nullptr, port);
  std::string why = "no address";
  // A socket of IPv6 takes guests of both kinds, where there is IPv6.
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
      if (one->ai_family != family) continue;
      Socket socket = open_for(*one);
      const int yes = 1, no = 0;
      if (family == AF_INET6) setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
      if (socket.is_open() &&
          setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
          bind(socket.get(), one->ai_addr, one->ai_addrlen) == 0 &&
          listen(socket.get(), SOMAXCONN) == 0)
        return socket;
      why = std::strerror(errno);
    }
  }
  throw MachineError("process 0 of the job cannot listen on port " + std::to_string(port) + ": " +
                     why);
}

int port_of(const Socket& listening) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(listening.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::optional<Socket> connect_to(const Addresses& addresses) {
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    Socket socket = open_for(*one);
    if (socket.is_open() && connect(socket.get(), one->ai_addr, one->ai_addrlen) == 0)
      return socket;
  }
  return std::nullopt;
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
