// How long a process of a job waits for the others, and the reads and writes of non-blocking
// sockets that keep to it. One thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "exec/transports/process/tcp/socket.hpp"

namespace pipewright::exec::tcp {

struct RendezvousOptions {
  std::int64_t timeout_ns = 60'000'000'000;
  const std::atomic<bool>* interrupted = nullptr;  // may be null; ends the wait by a MachineError
};

/// Of the machine's steady clock.
inline constexpr std::int64_t kNoDeadline = std::numeric_limits<std::int64_t>::max();

class Patience {
 public:
  /// From now on.
  explicit Patience(const RendezvousOptions& options);

  /// Throws MachineError if the time is over (`what` says what is missing) or the user has
  /// interrupted.
  void require(const std::string& what) const;
  /// Until the socket can be read (POLLIN), or written (POLLOUT); false if it cannot by `until_ns`.
  /// Throws as require().
  bool wait_for(const Socket& socket, short events, const std::string& what,
                std::int64_t until_ns = kNoDeadline) const;

 private:
  const RendezvousOptions& options_;
  const std::int64_t deadline_ns_;
};

/// False: the other side has gone, or it is `until_ns`.
bool read_all(const Socket& socket, void* to, std::size_t bytes, const Patience& patience,
              const std::string& what, std::int64_t until_ns = kNoDeadline);
bool write_all(const Socket& socket, const void* from, std::size_t bytes, const Patience& patience,
               const std::string& what, std::int64_t until_ns = kNoDeadline);

}  // namespace pipewright::exec::tcp
