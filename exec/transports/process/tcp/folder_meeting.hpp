// The meeting of a job's processes by files in a folder that all of them see: each leaves one and
// waits for those of the others. Without a token the files are the secret: only their owner reads
// them, and all must be of one owner.
#pragma once

#include <string>
#include <vector>

#include "exec/transports/process/tcp/rendezvous.hpp"

namespace pipewright::exec::tcp {

/// As come_together(); the files are called `name` and the process.
std::vector<PackedBytes> meet_by_files(const JobPlace& place, const PackedBytes& own,
                                       const std::string& name, const RendezvousOptions& options);

}  // namespace pipewright::exec::tcp
