// Carries frames between the processes of a job, reliably and in any order. A Wire belongs to one
// thread at a time: its owner holds a lock around every call. No call waits.
// exec/transports/process/mpi/wire.hpp goes by MPI, exec/transports/process/tcp/wire.hpp by
// sockets; tests bring one in memory.
#pragma once

#include <optional>
#include <vector>

#include "exec/transports/process/frame.hpp"

namespace pipewright::exec::mpi {

class Wire {
 public:
  virtual ~Wire() = default;
  virtual int process() const = 0;
  virtual int processes() const = 0;

  /// To another process. Does not say whether it arrives.
  virtual void send(int to, Frame frame) = 0;
  /// The next frame that has arrived whole. Throws RunError, once, if the wire breaks; after that
  /// nothing arrives from where it broke.
  virtual std::optional<ArrivedFrame> receive() = 0;
  /// Tokens of frames that are out of our hands since the last call: the other side has them, or
  /// they have been copied to where it will find them.
  virtual std::vector<std::uint64_t> take_sent() = 0;
  /// Processes whose connection has ended since the last call, after all that they had sent was
  /// received. A wire that does not see it says nothing.
  virtual std::vector<int> take_gone() { return {}; }
  /// take_gone() tells of every process that ends.
  virtual bool sees_ends() const { return false; }
  /// No frame arrives any more, from anybody, and close() must not be called. What is sent may
  /// still arrive.
  virtual bool is_broken() const { return false; }
  /// Nothing is half sent or half received.
  virtual bool is_at_rest() const = 0;
  /// Ends the connection in good order, after all frames have arrived everywhere.
  virtual void close() = 0;
};

}  // namespace pipewright::exec::mpi
