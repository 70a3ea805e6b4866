#include "tools/process_job.hpp"

#include <unistd.h>

#include <exception>
#include <memory>
#include <string>

#include "exec/mpi/mpi_wire.hpp"
#include "tools/complaint.hpp"
#include "tools/exit_status.hpp"
#include "tools/interrupt.hpp"

namespace pipewright::tools {
namespace {

/// The living all say who is dead: nobody knows whether process 0 is among them.
bool anybody_lost(exec::mpi::Link& link) {
  const std::scoped_lock lock(link.mutex());
  link.presence().look(0);
  for (int p = 0; p < link.processes(); ++p) {
    if (link.presence().is_lost(p)) return true;
  }
  return false;
}

void complain(exec::mpi::Link& link, const Session& session, const Complaint& complaint) {
  if (link.process() != 0 && !anybody_lost(link)) return;
  Session aloud(session.terminal(), false, false);
  const std::string who =
      link.process() == 0 ? "" : " (rank " + std::to_string(link.process()) + ")";
  aloud.note("pipewright run" + who + ": " + complaint.text);
}

}  // namespace

bool is_in_job() { return exec::mpi::processes_of_launcher() > 0; }

int run_in_job(Session& session, const std::function<int(exec::mpi::Link&, Session&)>& work) {
  const InterruptScope scope;  // a signal waits until the run looks at it
  be_patient_with_signals();
  exec::mpi::Link link(std::make_unique<exec::mpi::MpiWire>());
  Session silent(session.terminal(), session.json(), true);
  int status = kDone;
  try {
    status = work(link, link.process() == 0 ? session : silent);
    if (link.process() == 0) session.flush();
  } catch (const std::exception&) {
    ignore_signals();
    const Complaint complaint = complaint_of(std::current_exception());
    status = complaint.status;
    complain(link, session, complaint);
  }
  ignore_signals();
  if (!link.close()) _exit(status);
  return status;
}

}  // namespace pipewright::tools
