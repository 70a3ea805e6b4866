// The connections between any two processes of a job: made once, before it begins, with those who
// prove that they are of it.
#pragma once

#include <vector>

#include "exec/transports/process/tcp/rendezvous.hpp"
#include "exec/transports/process/tcp/socket.hpp"

namespace pipewright::exec::tcp {

/// By process; the own one is not open. The doors are closed when this returns. Throws as
/// come_together().
std::vector<Socket> connect_all(const JobPlace& place, const RendezvousOptions& options);

}  // namespace pipewright::exec::tcp
