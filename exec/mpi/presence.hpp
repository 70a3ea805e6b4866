// Which processes of the job are still there. Of those on this machine the kernel tells it at once
// (a pidfd, pidfd_open(2), becomes readable when its process ends); others are lost when they have
// been silent for too long. Not thread-safe: the Link guards it. Times on the steady clock.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace pipewright::exec::mpi {

struct ProcessSite {
  int pid = 0;
  std::string host;     // as people call it
  std::string machine;  // the same text in two processes: one steady clock, one set of processes
};
ProcessSite own_site();

class Presence {
 public:
  /// `sites` by process. `ask_kernel`: false leaves everything to silence.
  Presence(const std::vector<ProcessSite>& sites, int own, bool ask_kernel,
           std::int64_t silence_ns);
  ~Presence();
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;

  void heard(int process, std::int64_t now) { peers_[index(process)].heard_ns = now; }
  /// The process has said that it leaves: its end is no loss.
  void said_goodbye(int process) { peers_[index(process)].left = true; }
  /// Its connection has ended: a loss, unless it had said goodbye.
  void connection_ended(int process);
  /// From now on everybody gives signs of life.
  void expect_signs(std::int64_t now);
  void expect_none() { expects_signs_ = false; }

  void look(std::int64_t now);
  bool is_lost(int process) const { return peers_[index(process)].lost; }
  bool has_left(int process) const { return peers_[index(process)].left; }
  /// A process whose end the kernel has told, and that had not said goodbye; -1: none. Any thread,
  /// without a lock.
  int ended_process() const;
  /// "process 4711 on host a has ended".
  std::string how_lost(int process) const;

 private:
  struct Peer {
    int pidfd = -1;
    std::int64_t heard_ns = 0;
    std::atomic<bool> left{false};
    bool lost = false, is_cut_off = false;
    ProcessSite site;
  };
  static std::size_t index(int process) { return static_cast<std::size_t>(process); }

  std::deque<Peer> peers_;
  const int own_;
  const std::int64_t silence_ns_;
  bool expects_signs_ = false;
};

}  // namespace pipewright::exec::mpi
