// The meeting of a job's processes by TCP (exec/nccl/rendezvous.hpp). Process 0 listens and tells
// everybody; the others knock until it does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exec/nccl/rendezvous.hpp"

namespace pipewright::exec::nccl {

/// As come_together(); processes > 1.
std::vector<Bytes> meet_by_tcp(const JobPlace& place, const Bytes& own,
                               const RendezvousOptions& options);

/// Throws MachineError if the time is over (`what` says what is missing) or the user has
/// interrupted. `deadline` is of the steady clock.
void require_patience(const RendezvousOptions& options, std::int64_t deadline,
                      const std::string& what);

}  // namespace pipewright::exec::nccl
