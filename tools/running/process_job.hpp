// The job that this process is part of, started by mpirun (`--transport mpi`), or by another
// launcher that tells its processes so in their environment (`--transport tcp`): `run` and `tune`.
// Every process does the same; process 0 alone speaks.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "exec/transports/process/link.hpp"
#include "tools/cli/session.hpp"

namespace pipewright::tools {

enum class JobKind { Mpi, Tcp };

/// The job that this process is in: by mpirun ("mpi"), by its environment ("tcp"), or of several
/// processes by either ("nccl"). Throws InputError for an environment that is incomplete.
std::optional<JobKind> job_for(std::string_view transport);
/// There is none: throws MachineError, which says how to start `command` as `processes` of them.
[[noreturn]] void refuse_outside_job(std::string_view transport, const std::string& command,
                                     const std::string& processes);
/// Which of its host's processes this one is, so which GPU is its own.
int local_process(const exec::mpi::Link& link);

/// Joins the job, does the work of `command` with its link, and leaves the job in good order.
/// `session` of process 0 is the caller's; the others get one that says nothing. What `work` throws
/// is reported here, because mpirun ends all processes once one ends with a status other than 0.
/// Returns the status. Where a process was lost it ends this one, with the status.
int run_in_job(JobKind kind, Session& session, const std::string& command,
               const std::function<int(exec::mpi::Link&, Session&)>& work);

}  // namespace pipewright::tools
