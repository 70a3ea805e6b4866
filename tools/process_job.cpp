#include "tools/process_job.hpp"

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "core/error.hpp"
#include "exec/local/waiting.hpp"
#include "exec/mpi/mpi_wire.hpp"
#include "exec/tcp/wire.hpp"
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

/// A process that dies may leave a lock of MPI's shared memory taken, and whoever calls MPI then
/// never comes back. So somebody who needs no lock looks too: if there has been no getting at the
/// link for a while after a death, he says the sentence and ends the process.
class LastGuard {
 public:
  LastGuard(exec::mpi::Link& link, const Session& session, std::string command)
      : link_(link),
        session_(session),
        command_(std::move(command)),
        thread_([this] { watch(); }) {}
  ~LastGuard() {
    over_.store(true);
    thread_.join();
  }
  LastGuard(const LastGuard&) = delete;
  LastGuard& operator=(const LastGuard&) = delete;

 private:
  static constexpr std::int64_t kLookNs = 20'000'000, kTryNs = 500'000;
  static constexpr int kTries = 600;

  void watch() {
    while (!over_.load()) {
      const int dead = link_.presence().ended_process();
      if (dead >= 0 && !can_get_at_link()) leave(dead);
      exec::local::sleep_until_steady(exec::local::steady_ns() + kLookNs);
    }
  }
  bool can_get_at_link() {
    for (int i = 0; i < kTries && !over_.load(); ++i) {
      const std::unique_lock lock(link_.mutex(), std::try_to_lock);
      if (lock.owns_lock()) return true;
      exec::local::sleep_until_steady(exec::local::steady_ns() + kTryNs);
    }
    return over_.load();
  }
  [[noreturn]] void leave(int dead) {
    Session aloud(session_.terminal(), false, false);
    aloud.note("pipewright " + command_ + " (rank " + std::to_string(link_.process()) + "): rank " +
               std::to_string(dead) + " is dead: its " + link_.presence().how_lost(dead) +
               ", and the job does not answer any more");
    leave_at_once(kRunFailed);
  }

  exec::mpi::Link& link_;
  const Session& session_;
  const std::string command_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

void complain(exec::mpi::Link& link, const Session& session, const std::string& command,
              const Complaint& complaint) {
  if (link.process() != 0 && !anybody_lost(link)) return;
  Session aloud(session.terminal(), false, false);
  const std::string who =
      link.process() == 0 ? "" : " (rank " + std::to_string(link.process()) + ")";
  aloud.note("pipewright " + command + who + ": " + complaint.text);
}

std::optional<exec::tcp::JobPlace> place_of_job() {
  return exec::tcp::job_place(exec::tcp::process_environment());
}

std::unique_ptr<exec::mpi::Wire> wire_of(JobKind kind) {
  if (kind == JobKind::Mpi) return std::make_unique<exec::mpi::MpiWire>();
  try {
    return std::make_unique<exec::tcp::TcpWire>(
        *place_of_job(), exec::tcp::RendezvousOptions{.interrupted = &interrupt_flag()});
  } catch (const MachineError&) {
    InterruptScope::check();  // then that is why
    throw;
  }
}

}  // namespace

std::optional<JobKind> job_for(std::string_view transport) {
  const bool of_mpi = exec::mpi::processes_of_launcher() > 0;
  if (of_mpi && transport != "tcp") return JobKind::Mpi;
  if (transport == "mpi") return std::nullopt;
  const auto place = place_of_job();
  const int least = transport == "tcp" ? 1 : 2;
  return place && place->processes >= least ? std::optional(JobKind::Tcp) : std::nullopt;
}

void refuse_outside_job(std::string_view transport, const std::string& command,
                        const std::string& processes) {
  if (transport == "mpi")
    throw MachineError(
        "--transport mpi is between the processes of a job, and mpirun has not started this one; "
        "start it with mpirun -np " +
        processes + " pipewright " + command + " …");
  throw MachineError(
      "--transport tcp is between the processes of a job, and nothing in the environment says "
      "that this is one of them; start it with torchrun --no-python --nproc-per-node " +
      processes + " pipewright " + command +
      " …, or set PIPEWRIGHT_RANK, PIPEWRIGHT_WORLD_SIZE and PIPEWRIGHT_RENDEZVOUS "
      "(tcp://host:port or file:///folder) for each process");
}

int local_process(const exec::mpi::Link& link) {
  if (const auto local = exec::mpi::local_process_of_launcher()) return *local;
  const auto place = place_of_job();
  return place ? place->local_process : link.process();
}

int run_in_job(JobKind kind, Session& session, const std::string& command,
               const std::function<int(exec::mpi::Link&, Session&)>& work) {
  const InterruptScope scope;  // a signal waits until the run looks at it
  be_patient_with_signals();
  exec::mpi::Link link(wire_of(kind));
  const LastGuard guard(link, session, command);
  Session silent(session.terminal(), session.json(), true);
  int status = kDone;
  try {
    status = work(link, link.process() == 0 ? session : silent);
    if (link.process() == 0) session.flush();
  } catch (const std::exception&) {
    ignore_signals();
    const Complaint complaint = complaint_of(std::current_exception());
    status = complaint.status;
    complain(link, session, command, complaint);
  }
  ignore_signals();
  if (!link.close()) leave_at_once(status);
  return status;
}

}  // namespace pipewright::tools
