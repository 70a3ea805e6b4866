// Stream sockets between the processes of a job: who owns them, and how they are opened. Failures
// that a user can do something about are MachineErrors.
#pragma once

#include <netdb.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

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

/// Of a port of that host. Throws MachineError where nobody knows the host.
Addresses addresses_of(const std::string& host, int port);
/// Listens on all addresses of this host; port 0 takes one that is free. Throws MachineError.
Socket listen_at(int port);
/// The port that a socket listens on.
int port_of(const Socket& listening);
/// nullopt: nobody answers.
std::optional<Socket> connect_to(const Addresses& addresses);
/// This host's address as those see it that are reached by way of `addresses`; empty: no way.
std::string own_address_towards(const Addresses& addresses);

}  // namespace pipewright::exec::tcp
