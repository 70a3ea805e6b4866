// Stream sockets between the processes of a job: who owns them, where they listen, and how they are
// opened. Failures that a user can do something about are MachineErrors.
#pragma once

#include <netdb.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pipewright::exec::tcp {

/// Owns a descriptor.
class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  ~Socket();
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

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// "node-0:2950", "[::1]:2950".
std::string address_text(const std::string& host, int port);
/// Of a port of that host. Throws MachineError where nobody knows the host.
Addresses addresses_of(const std::string& host, int port);
/// Only this host's own processes reach them.
bool is_loopback(const Addresses& addresses);
/// Every address of this host ("0.0.0.0", "::").
bool is_wildcard(const Addresses& addresses);
/// Listens on those of the addresses that are this host's, and on no other; the sockets do not
/// block. Port 0 takes one that is free. Throws MachineError where none is, or one is taken.
std::vector<Socket> listen_at(const Addresses& addresses, const std::string& host, int port);
/// The port that a socket listens on.
int port_of(const Socket& listening);
/// A socket that does not block; nullopt: nobody answers by that time of the steady clock.
std::optional<Socket> connect_to(const Addresses& addresses, std::int64_t until_ns);
/// The other side has ended the connection, and all that it sent was read.
bool has_gone(const Socket& socket);
/// This host's address as those see it that are reached by way of `addresses`; empty: no way.
std::string own_address_towards(const Addresses& addresses);

}  // namespace pipewright::exec::tcp
