// Who stands at a process's door, and who of them is let in: those who prove that they know the
// job's token. All are heard at once and none is waited for, so that a stranger who says nothing,
// half of it or nonsense delays nobody; each is sent away for himself. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "exec/transports/process/tcp/handshake.hpp"
#include "exec/transports/process/tcp/socket.hpp"

namespace pipewright::exec::tcp {

/// A process that has proved itself and said all it came to say.
struct Guest {
  std::uint32_t process = 0, processes = 0;  // as it claims
  PackedBytes bytes;
  Block session{};
  Socket socket;  // does not block
};

class Doorkeeper {
 public:
  /// The doors do not block; they must outlive this.
  Doorkeeper(std::span<const Socket> doors, const Lock& lock);

  /// Those who are through by now; waits up to `wait_ms` for anything to happen at the doors.
  std::vector<Guest> let_in(int wait_ms);
  /// How many were sent away.
  int turned_away() const { return turned_away_; }

 private:
  enum class Stage : std::uint8_t { Claim, Length, Sealed };
  struct Visitor {
    Socket socket;
    Block challenge{}, session{};
    std::int64_t deadline_ns = 0;
    Claim claim;
    Stage stage = Stage::Claim;
    PackedBytes got;
    std::size_t wanted = sizeof(Claim);
  };

  void greet_new(const Socket& door);
  void make_room();
  /// False: he is to go.
  bool hear(Visitor& visitor);
  bool go_on(Visitor& visitor);
  bool answer_claim(Visitor& visitor);
  static std::optional<Guest> guest_of(Visitor& visitor);

  std::span<const Socket> doors_;
  Lock lock_;
  std::deque<Visitor> visitors_;  // the one who came first is in front
  int turned_away_ = 0;
};

}  // namespace pipewright::exec::tcp
