// The job of mpirun that this process is part of: `run` and `tune` with `--transport mpi`. Every
// process does the same; process 0 alone speaks.
#pragma once

#include <functional>

#include "exec/mpi/link.hpp"
#include "tools/session.hpp"

namespace pipewright::tools {

/// Whether mpirun has started this process.
bool is_in_job();

/// Joins the job, does the work of `command` with its link, and leaves the job in good order.
/// `session` of process 0 is the caller's; the others get one that says nothing. What `work` throws
/// is said here, because the first process that ends with a status other than 0 lets mpirun end all
/// of them. Returns the status. Where a process was lost it ends this one, with the status.
int run_in_job(Session& session, const std::string& command,
               const std::function<int(exec::mpi::Link&, Session&)>& work);

}  // namespace pipewright::tools
