#include "exec/mpi/presence.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>

namespace pipewright::exec::mpi {
namespace {

int open_pid(int pid) {
#if defined(SYS_pidfd_open)
  const long fd = syscall(SYS_pidfd_open, pid, 0);
  if (fd >= 0) fcntl(static_cast<int>(fd), F_SETFD, FD_CLOEXEC);
  return static_cast<int>(fd);
#else
  static_cast<void>(pid);
  return -1;
#endif
}

bool has_ended(int pidfd) {
  pollfd one{pidfd, POLLIN, 0};
  return poll(&one, 1, 0) > 0;
}

}  // namespace

ProcessSite own_site() {
  ProcessSite site;
  site.pid = getpid();
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  site.host = name;
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::getline(boot, site.machine);
  // Containers of one machine have numbers of processes of their own.
  char space[64] = "";
  if (readlink("/proc/self/ns/pid", space, sizeof space - 1) > 0) site.machine += space;
  return site;
}

Presence::Presence(const std::vector<ProcessSite>& sites, int own, bool ask_kernel,
                   std::int64_t silence_ns)
    : own_(own), silence_ns_(silence_ns) {
  for (std::size_t p = 0; p < sites.size(); ++p) {
    Peer& peer = peers_.emplace_back();
    peer.site = sites[p];
    const bool near = sites[p].machine == sites[index(own)].machine;
    if (ask_kernel && near && static_cast<int>(p) != own) peer.pidfd = open_pid(sites[p].pid);
  }
}

Presence::~Presence() {
  for (const Peer& peer : peers_) {
    if (peer.pidfd >= 0) close(peer.pidfd);
  }
}

void Presence::connection_ended(int process) {
  Peer& peer = peers_[index(process)];
  if (peer.left) return;
  peer.lost = peer.is_cut_off = true;
}

void Presence::expect_signs(std::int64_t now) {
  if (expects_signs_) return;
  expects_signs_ = true;
  for (Peer& peer : peers_) peer.heard_ns = now;
}

void Presence::look(std::int64_t now) {
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    Peer& peer = peers_[p];
    if (static_cast<int>(p) == own_ || peer.left || peer.lost) continue;
    if (peer.pidfd >= 0) {
      peer.lost = has_ended(peer.pidfd);
    } else if (expects_signs_) {
      peer.lost = now - peer.heard_ns > silence_ns_;
    }
  }
}

int Presence::ended_process() const {
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    const Peer& peer = peers_[p];
    if (peer.pidfd >= 0 && !peer.left && has_ended(peer.pidfd)) return static_cast<int>(p);
  }
  return -1;
}

std::string Presence::how_lost(int process) const {
  const Peer& peer = peers_[index(process)];
  const std::string who = "process " + std::to_string(peer.site.pid) + " on " + peer.site.host;
  if (peer.left) return who + " has left the run";
  return peer.pidfd >= 0 || peer.is_cut_off ? who + " has ended"
                                            : who + " has been silent for too long";
}

}  // namespace pipewright::exec::mpi
