#include "exec/transports/process/tcp/patience.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "core/base/error.hpp"
#include "exec/base/waiting.hpp"

namespace pipewright::exec::tcp {
namespace {

constexpr int kPatienceLooksMs = 100;

}  // namespace

Patience::Patience(const RendezvousOptions& options)
    : options_(options), deadline_ns_(local::steady_ns() + options.timeout_ns) {}

void Patience::require(const std::string& what) const {
  if (options_.interrupted != nullptr && options_.interrupted->load())
    throw MachineError("the job was interrupted before its processes had met");
  if (local::steady_ns() > deadline_ns_)
    throw MachineError("the processes of the job have not met in time: " + what);
}

bool Patience::wait_for(const Socket& socket, short events, const std::string& what,
                        std::int64_t until_ns) const {
  while (local::steady_ns() < until_ns) {
    pollfd one{socket.get(), events, 0};
    if (poll(&one, 1, kPatienceLooksMs) > 0) return true;
    require(what);
  }
  return false;
}

bool read_all(const Socket& socket, void* to, std::size_t bytes, const Patience& patience,
              const std::string& what, std::int64_t until_ns) {
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    if (!patience.wait_for(socket, POLLIN, what, until_ns)) return false;
    const ssize_t got = recv(socket.get(), at, bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

bool write_all(const Socket& socket, const void* from, std::size_t bytes, const Patience& patience,
               const std::string& what, std::int64_t until_ns) {
  const auto* at = static_cast<const std::byte*>(from);
  while (bytes > 0) {
    if (!patience.wait_for(socket, POLLOUT, what, until_ns)) return false;
    const ssize_t put = send(socket.get(), at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (put <= 0) return false;
    at += put;
    bytes -= static_cast<std::size_t>(put);
  }
  return true;
}

}  // namespace pipewright::exec::tcp
