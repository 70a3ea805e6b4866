#include "tools/running/process_job.hpp"

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "core/base/error.hpp"
#include "exec/base/waiting.hpp"
#include "exec/runtime/runtime.hpp"
#include "exec/transports/process/all_gather.hpp"
#include "exec/transports/process/mpi/wire.hpp"
#include "exec/transports/process/tcp/wire.hpp"
#include "tools/cli/complaint.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/interrupt.hpp"

namespace pipewright::tools {
namespace {

// How long process 0 waits for another's reason, and another one for what process 0 says.
constexpr std::int64_t kReasonNs = 5'000'000'000, kWordOf0Ns = 3'000'000'000;

/// A command that has failed, as its process sees it.
struct OwnFailure {
  Complaint complaint;
  bool peer_lost = false;  // another process is gone
  bool by_others = false;  // another process has failed
};

OwnFailure failure_of(const std::exception_ptr& thrown) {
  OwnFailure failure{complaint_of(thrown)};
  try {
    std::rethrow_exception(thrown);
  } catch (const exec::RunFailed& failed) {
    failure.peer_lost = failed.result().peer_lost;
    failure.by_others = failed.result().by_others;
  } catch (const exec::mpi::GivenUp&) {
    failure.by_others = true;
  } catch (const std::exception&) {
    // Its own.
  }
  return failure;
}

bool is_lost(exec::mpi::Link& link, int process) {
  const std::scoped_lock lock(link.mutex());
  return link.presence().is_lost(process);
}

/// A process that dies may leave a lock of MPI's shared memory taken, and a thread that calls MPI
/// then never comes back. So a thread that needs no such lock watches too: if it cannot get the
/// link's mutex for a while after a death, it reports the death and ends the process.
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
  /// What went wrong has been reported.
  void has_spoken() { has_spoken_.store(true); }
  LastGuard(const LastGuard&) = delete;
  LastGuard& operator=(const LastGuard&) = delete;

 private:
  static constexpr std::int64_t kLookNs = 20'000'000, kTryNs = 500'000;
  static constexpr int kTries = 600;

  void watch() {
    while (!over_.load()) {
      // The first that has ended: others may have ended because of it, and their goodbye was not
      // heard.
      if (dead_ >= 0 && link_.presence().has_left(dead_)) dead_ = -1;
      if (dead_ < 0) dead_ = link_.presence().ended_process();
      if (dead_ >= 0 && !can_get_at_link()) leave();
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
  [[noreturn]] void leave() {
    if (has_spoken_.load()) _exit(kRunFailed);
    Session aloud(session_.terminal(), false, false);
    aloud.note("pipewright " + command_ + " (rank " + std::to_string(link_.process()) + "): rank " +
               std::to_string(dead_) + " is dead: its " + link_.presence().how_lost(dead_) +
               ", and the job does not answer any more");
    leave_at_once(kRunFailed);
  }

  exec::mpi::Link& link_;
  const Session& session_;
  const std::string command_;
  std::atomic<bool> over_{false}, has_spoken_{false};
  int dead_ = -1;  // of the thread
  std::thread thread_;
};

void say_to_others(exec::mpi::Link& link, const Complaint& complaint) {
  const std::scoped_lock lock(link.mutex());
  try {
    link.say_failure({complaint.status, complaint.text});
  } catch (const std::exception&) {
    // They notice that this process is gone.
  }
}

/// Why another process has failed, as process 0 reports it.
Complaint reason_of_others(exec::mpi::Link& link, const Complaint& otherwise) {
  link.wait_for_failure(std::nullopt, kReasonNs);
  const std::scoped_lock lock(link.mutex());
  for (int p = 1; p < link.processes(); ++p) {
    const auto& failure = link.failure_of(p);
    if (!failure) continue;
    const std::string rank = "rank " + std::to_string(p);
    return {failure->status, (failure->text.starts_with(rank) ? "" : rank + ": ") + failure->text};
  }
  return otherwise;
}

/// Process 0 reports what went wrong, wherever it did. Another process reports its own failure too,
/// unless process 0 reports the same. That a process is lost every other one reports, because it
/// might be process 0. Returns the status.
int complain(exec::mpi::Link& link, const Session& session, const std::string& command,
             OwnFailure failure) {
  Complaint& complaint = failure.complaint;
  std::string who;
  if (link.process() == 0) {
    if (failure.by_others) complaint = reason_of_others(link, complaint);
    say_to_others(link, complaint);
  } else {
    who = " (rank " + std::to_string(link.process()) + ")";
    if (failure.by_others && !is_lost(link, 0)) return complaint.status;
    if (!failure.by_others && !failure.peer_lost) {
      say_to_others(link, complaint);
      link.wait_for_failure(0, kWordOf0Ns);
      const std::scoped_lock lock(link.mutex());
      const auto& word = link.failure_of(0);
      if (word && word->text == complaint.text) return complaint.status;
    }
  }
  Session aloud(session.terminal(), false, false);
  aloud.note("pipewright " + command + who + ": " + complaint.text);
  return complaint.status;
}

std::optional<exec::tcp::JobPlace> place_of_job() {
  return exec::tcp::job_place(exec::tcp::process_environment());
}

std::unique_ptr<exec::mpi::Wire> wire_of(JobKind kind) {
  if (kind == JobKind::Mpi) return std::make_unique<exec::mpi::MpiWire>();
  return std::make_unique<exec::tcp::TcpWire>(
      *place_of_job(), exec::tcp::RendezvousOptions{.interrupted = &interrupt_flag()});
}

std::unique_ptr<exec::mpi::Link> join(JobKind kind) {
  try {
    return std::make_unique<exec::mpi::Link>(
        wire_of(kind), exec::mpi::LinkOptions{.interrupted = &interrupt_flag()});
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
  const auto joined = join(kind);
  exec::mpi::Link& link = *joined;
  LastGuard guard(link, session, command);
  Session silent(session.terminal(), session.json(), true);
  int status = kDone;
  try {
    status = work(link, link.process() == 0 ? session : silent);
    if (link.process() == 0) session.flush();
  } catch (const std::exception&) {
    ignore_signals();
    status = complain(link, session, command, failure_of(std::current_exception()));
    guard.has_spoken();
  }
  ignore_signals();
  if (!link.close()) leave_at_once(status);
  return status;
}

}  // namespace pipewright::tools
