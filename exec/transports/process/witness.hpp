// Connections on which nothing is said, by which the kernel of another process's machine tells when
// that process has ended: where no pidfd can (other machines, other sets of process numbers) and
// the wire does not see it (MPI). Whoever wants to be told invites the other; the other connects,
// writes the number that it was given for this one connection, and keeps it open as long as it
// lives. No call waits. Not thread-safe: the Link guards it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exec/base/packing.hpp"

namespace pipewright::exec::mpi {

class Witnesses {
 public:
  /// `network`: the same text in two processes that have one loopback.
  explicit Witnesses(std::string network) : network_(std::move(network)) {}
  ~Witnesses();
  Witnesses(const Witnesses&) = delete;
  Witnesses& operator=(const Witnesses&) = delete;

  /// What `process` has to be told to bear witness here; nullopt: this process cannot be reached.
  std::optional<PackedBytes> invitation_for(int process);
  /// Connects to whoever has sent the invitation.
  void accept(const PackedBytes& invitation);

  struct Seen {
    int process = 0;
    int descriptor = -1;  // readable when the process has ended; the caller's
  };
  /// Goes on with what is under way: those who have come since the last call. Strangers are sent
  /// away.
  std::vector<Seen> look(std::int64_t now);

 private:
  using Number = std::array<std::uint64_t, 2>;
  struct Invited {
    int process = 0;
    Number number{};
  };
  struct Guest {
    int descriptor = -1;
    std::int64_t since_ns = 0;
  };
  struct Connecting {
    int descriptor = -1;
    Number number{};
    bool has_written = false;
  };

  bool open_door();
  void let_in(std::int64_t now);
  std::optional<Seen> recognise(const Guest& guest);
  void knock(const std::string& address, int port, const Number& number);

  const std::string network_;
  int door_ = -1, port_ = 0;
  std::vector<std::string> addresses_;  // of this machine
  std::vector<Invited> invited_;
  std::vector<Guest> guests_;
  std::vector<Connecting> connecting_;
};

}  // namespace pipewright::exec::mpi
