#include "exec/tcp/patience.hpp"

#include <poll.h>
#include <sys/socket.h>

#include "core/error.hpp"
#include "exec/local/waiting.hpp"

namespace pipewright::exec::tcp {
namespace {

constexpr int kPatienceLookMs = 100;

}  // namespace

Patience::Patience(const RendezvousOptions& options)
    : options_(options), deadline_ns_(local::steady_ns() + options.timeout_ns) {}

void Patience::require(const std::string& what) const {
  if (options_.interrupted != nullptr && options_.interrupted->load())
    throw MachineError("the job was interrupted before its processes had met");
  if (local::steady_ns() > deadline_ns_)
    throw MachineError("the processes of the job have not met in time: " + what);
}

void Patience::wait_for(const Socket& socket, short events, const std::string& what) const {
  while (true) {
    pollfd one{socket.get(), events, 0};
    if (poll(&one, 1, kPatienceLookMs) > 0) return;
    require(what);
  }
}

bool read_all(const Socket& socket, void* to, std::size_t bytes, const Patience& patience,
              const std::string& what) {
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    patience.wait_for(socket, POLLIN, what);
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
    patience.wait_for(socket, POLLOUT, what);
    const ssize_t put = send(socket.get(), at, bytes, MSG_NOSIGNAL);
    if (put <= 0) return false;
    at += put;
    bytes -= static_cast<std::size_t>(put);
  }
  return true;
}

}  // namespace pipewright::exec::tcp
