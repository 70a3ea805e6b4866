// Knocking at a door of the job until it is opened: the other side of a Doorkeeper.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "exec/transports/process/tcp/handshake.hpp"
#include "exec/transports/process/tcp/patience.hpp"
#include "exec/transports/process/tcp/socket.hpp"

namespace pipewright::exec::tcp {

/// Who knocks, and what he brings.
struct Knocker {
  int process = 0, processes = 0;
  PackedBytes bytes;
};

/// A door of the job, for those who knock at it.
struct DoorTo {
  std::string host;
  int port = 0;
  int owner = 0;                              // the process whose door it is
  std::function<std::optional<Block>()> key;  // asked at each try; nullopt: not to be had yet
  std::string why_no_key;
  bool may_refuse = false;  // a door that keeps saying that the token is wrong is believed
};

struct Entrance {
  Socket socket;  // does not block
  Block session{};
};

/// Nobody who does not know the token gets more from it than proofs over his own challenges.
/// Throws MachineError if nobody opens in time, InputError if the token is another one.
Entrance knock(const DoorTo& door, const Knocker& knocker, const Patience& patience);

/// What the other side has sealed. Throws MachineError, which says that it `has gone`, or that
/// somebody in between has changed it.
PackedBytes read_sealed(const Entrance& entrance, Speaker speaker, const Patience& patience,
                        const std::string& missing, const std::string& has_gone);

}  // namespace pipewright::exec::tcp
