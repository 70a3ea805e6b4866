// How the processes of a job that no mpirun has started find one another: what each of them brings
// goes to all of them, once. By TCP, where process 0 listens, or by files in a folder that all of
// them see.
//
// Names in the environment, Pipewright's own first, then torchrun's:
//   PIPEWRIGHT_RANK, RANK                    this process, from 0
//   PIPEWRIGHT_WORLD_SIZE, WORLD_SIZE        how many there are
//   PIPEWRIGHT_LOCAL_RANK, LOCAL_RANK        which of this host's, so which GPU; 0 where left out
//   PIPEWRIGHT_RENDEZVOUS                    "tcp://host:port", or "file:///folder", a fresh one
//   MASTER_ADDR, MASTER_PORT                 host, and the port below the one that is used:
//                                            torchrun's own store listens on MASTER_PORT
//   PIPEWRIGHT_TOKEN                         the secret that all processes of the job know
//   PIPEWRIGHT_TOKEN_FILE                    a file of this user's alone that holds it
//   PIPEWRIGHT_LISTEN                        this process's address to listen on; where left out,
//                                            process 0 listens on the host of the rendezvous, the
//                                            others on theirs as it is seen from there
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "exec/base/packing.hpp"
#include "exec/transports/process/tcp/patience.hpp"

namespace pipewright::exec::tcp {

struct JobPlace {
  int process = 0, processes = 1;
  int local_process = 0;
  std::string host;  // empty: by files
  int port = 0;
  std::string folder;
  std::string token;   // empty: none is given
  std::string listen;  // empty: not given
};

/// Looks up a name of the environment; nullopt where it is not set.
using Environment = std::function<std::optional<std::string>(const char* name)>;
Environment process_environment();

/// Nothing where the environment says nothing of a job. Throws InputError where it says half of it,
/// or nonsense: names the variable.
std::optional<JobPlace> job_place(const Environment& environment);

/// By process, in all of them: what each has brought. Throws MachineError if they do not come
/// together in time (says who is missing), and InputError for a folder that was used before, for
/// one where somebody else has laid something out, for another process's token that differs, and
/// for a place that strangers can reach where no token is given.
std::vector<PackedBytes> come_together(const JobPlace& place, const PackedBytes& own,
                                       const RendezvousOptions& options = {});

}  // namespace pipewright::exec::tcp
