// Every process of a job tells all others a text and hears theirs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "exec/transports/process/link.hpp"

namespace pipewright::exec::mpi {

/// A process that the others wait for has given up, and has said why.
class GivenUp : public RunError {
 public:
  using RunError::RunError;
};

/// Throws GivenUp, or RunError, if that process is. The caller holds the link's mutex.
void require_present(Link& link, int process);

/// The texts by process, one's own too. Waits until all are there; every process has to call it
/// equally often. `while_waiting` may end the wait by an exception. Throws GivenUp, or RunError
/// naming a process that has ended.
std::vector<std::string> all_gather(Link& link, const std::string& text,
                                    const std::function<void()>& while_waiting = {});

}  // namespace pipewright::exec::mpi
