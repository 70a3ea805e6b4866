// The meeting of a job's processes by TCP (exec/tcp/rendezvous.hpp). Process 0 listens and tells
// everybody; the others knock until it does.
#pragma once

#include <vector>

#include "exec/tcp/rendezvous.hpp"

namespace pipewright::exec::tcp {

/// As come_together(); processes > 1.
std::vector<Bytes> meet_by_tcp(const JobPlace& place, const Bytes& own,
                               const RendezvousOptions& options);

}  // namespace pipewright::exec::tcp
