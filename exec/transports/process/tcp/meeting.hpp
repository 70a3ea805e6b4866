// The meeting of a job's processes by TCP (exec/transports/process/tcp/rendezvous.hpp). Process 0
// listens and tells everybody; the others knock until it does.
#pragma once

#include <vector>

#include "exec/transports/process/tcp/proof.hpp"
#include "exec/transports/process/tcp/rendezvous.hpp"
#include "exec/transports/process/tcp/socket.hpp"

namespace pipewright::exec::tcp {

/// Of the rendezvous. Throws MachineError where nobody knows the host, after waiting for it where
/// it may still be made, and InputError where others than this host reach it and the job has no
/// token.
Addresses meeting_place(const JobPlace& place, const Patience& patience);
/// Process 0's. Throws MachineError where it cannot listen.
std::vector<Socket> meeting_doors(const JobPlace& place, const Patience& patience);

struct Met {
  std::vector<PackedBytes> all;  // by process, what each has brought
  Block key{};                   // of the job's token; nobody else knows it
};

/// As come_together(); processes > 1. `doors` are process 0's, empty in the others.
Met meet_by_tcp(const JobPlace& place, const PackedBytes& own, const RendezvousOptions& options,
                const std::vector<Socket>& doors);

}  // namespace pipewright::exec::tcp
