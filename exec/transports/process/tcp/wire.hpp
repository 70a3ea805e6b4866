// Frames by sockets, between processes that no mpirun has started: torchrun, a script, a job of the
// cluster's own (exec/transports/process/tcp/rendezvous.hpp says what they find in their
// environment). A connection between any two that have proved to one another that they are of the
// job; each carries frames in order. What they carry is not encrypted: who taps the network reads
// it.
#pragma once

#include <poll.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "exec/transports/process/tcp/rendezvous.hpp"
#include "exec/transports/process/tcp/socket.hpp"
#include "exec/transports/process/wire.hpp"

namespace pipewright::exec::tcp {

class TcpWire final : public mpi::Wire {
 public:
  /// Meets the others and connects to each of them. Throws as come_together().
  explicit TcpWire(const JobPlace& place, const RendezvousOptions& options = {});

  int process() const override { return process_; }
  int processes() const override { return static_cast<int>(peers_.size()); }
  /// What is sent to a process that has gone is dropped: take_gone() tells of it.
  void send(int to, mpi::Frame frame) override;
  std::optional<mpi::ArrivedFrame> receive() override;
  std::vector<std::uint64_t> take_sent() override;
  std::vector<int> take_gone() override;
  bool sees_ends() const override { return true; }
  bool is_at_rest() const override;
  void close() override;

 private:
  /// The head, the note and the values of a frame, of which `done` bytes have been moved.
  struct Moving {
    mpi::Frame frame;
    std::size_t done = 0;
  };
  struct Peer {
    Socket socket;
    std::deque<Moving> sending;
    Moving receiving;
    bool hears = true;  // what it has sent may still be on its way when it does not
    bool is_gone = false, is_told = false;
  };

  /// Until nothing more goes into the socket.
  void send_more(Peer& peer);
  /// A whole frame, if there is one; else the peer has nothing to read for now, or is gone.
  std::optional<mpi::Frame> receive_from(Peer& peer);
  void find_readable();

  int process_;
  std::vector<Peer> peers_;     // by process
  std::vector<pollfd> polled_;  // by process; what find_readable() asks
  std::vector<int> readable_;   // those that had something to read, the next one last
  std::vector<std::uint64_t> sent_;
};

}  // namespace pipewright::exec::tcp
