#include "exec/transports/process/presence.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

namespace pipewright::exec::mpi {
namespace {

// How long a goodbye may be on its way after the end of its process.
constexpr std::int64_t kGoodbyeNs = 50'000'000;
// A process that was itself stopped for so long has not listened: nobody counts as silent then.
constexpr std::int64_t kPauseNs = 1'000'000'000;

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

bool has_ended(int sight) {
  pollfd one{sight, POLLIN, 0};
  return sight >= 0 && poll(&one, 1, 0) > 0;
}

std::string namespace_of(const char* kind) {
  char name[64] = "";
  const std::string path = std::string("/proc/self/ns/") + kind;
  return readlink(path.c_str(), name, sizeof name - 1) > 0 ? name : "";
}

}  // namespace

ProcessSite own_site() {
  ProcessSite site;
  site.pid = getpid();
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  site.host = name;
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  // The numbers of namespaces are the same on many machines.
  if (boot.empty()) boot = "host " + site.host;
  // Containers of one machine have numbers of processes, and clocks, of their own.
  site.machine = boot + namespace_of("pid") + namespace_of("time");
  site.network = boot + namespace_of("net");
  return site;
}

void Presence::met(int process, const ProcessSite& site, const ProcessSite& own, bool ask_kernel) {
  Peer& peer = peers_[index(process)];
  peer.site = site;
  if (!ask_kernel || site.machine != own.machine) return;
  peer.sight = open_pid(site.pid);
  peer.lost = peer.sight < 0 && errno == ESRCH;
}

Presence::~Presence() {
  for (const Peer& peer : peers_) {
    if (peer.sight >= 0) close(peer.sight);
  }
}

bool Presence::is_out_of_sight(int process) const {
  return process != own_ && peers_[index(process)].sight < 0;
}

void Presence::see_by(int process, int descriptor) {
  int before = -1;
  if (!peers_[index(process)].sight.compare_exchange_strong(before, descriptor)) close(descriptor);
}

void Presence::connection_ended(int process) {
  Peer& peer = peers_[index(process)];
  if (!peer.left) peer.lost = true;
}

void Presence::expect_signs(std::int64_t now) {
  if (expects_signs_) return;
  expects_signs_ = true;
  for (Peer& peer : peers_) peer.heard_ns = now;
}

void Presence::look(std::int64_t now) {
  const std::int64_t pause = now - looked_ns_;
  looked_ns_ = now;
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    Peer& peer = peers_[p];
    if (pause > kPauseNs) peer.heard_ns = std::min(now, peer.heard_ns + pause);
    if (peer.left || peer.lost || !has_ended(peer.sight)) continue;
    if (peer.ended_ns == 0) peer.ended_ns = now;
    peer.lost = read_all_ns_ - peer.ended_ns > kGoodbyeNs;
  }
}

bool Presence::awaits_goodbye() const {
  return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return peer.ended_ns != 0 && !peer.left && !peer.lost;
  });
}

void Presence::give_up_silent(std::int64_t now, std::int64_t silence_ns) {
  if (!expects_signs_) return;
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    Peer& peer = peers_[p];
    const std::int64_t silent_ns = now - peer.heard_ns;
    if (!gives_signs(static_cast<int>(p)) || peer.left || peer.lost || silent_ns <= silence_ns)
      continue;
    peer.lost = true;
    peer.silent_ns = silent_ns;
  }
}

int Presence::first_lost() const {
  const auto found =
      std::find_if(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.lost; });
  return found == peers_.end() ? -1 : static_cast<int>(found - peers_.begin());
}

int Presence::ended_process() const {
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    const Peer& peer = peers_[p];
    if (!peer.left && has_ended(peer.sight)) return static_cast<int>(p);
  }
  return -1;
}

std::string Presence::how_lost(int process) const {
  const Peer& peer = peers_[index(process)];
  const bool is_known = peer.site.pid != 0;
  const std::string who =
      is_known ? "process " + std::to_string(peer.site.pid) + " on " + peer.site.host : "process";
  if (peer.left) return who + " has left the run";
  if (peer.silent_ns == 0) return who + " has ended";
  return who + " has been silent for " + std::to_string(peer.silent_ns / 1'000'000'000) +
         " s (it was stopped, or its machine or the network is down)";
}

}  // namespace pipewright::exec::mpi
