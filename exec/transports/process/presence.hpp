// Which processes of the job are still there. A process is lost when the kernel says that it has
// ended (a descriptor becomes readable then: a pidfd, pidfd_open(2), or a connection that bears
// witness of it, exec/transports/process/witness.hpp), when its connection has ended (wires that
// see that), or when it has been silent for longer than the run is patient. Silence alone comes
// last: a process that is stopped for a while, or computes, is alive. Not thread-safe: the Link
// guards it. Times on the steady clock.
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
  std::string network;  // the same text in two processes: one loopback
};
ProcessSite own_site();

class Presence {
 public:
  Presence(int processes, int own) : peers_(index(processes)), own_(own) {}
  ~Presence();
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;

  /// What the process has said of itself. `ask_kernel`: if it is on this machine, the kernel is
  /// asked to tell of its end.
  void met(int process, const ProcessSite& site, const ProcessSite& own, bool ask_kernel);
  /// The kernel does not tell of its end yet.
  bool is_out_of_sight(int process) const;
  /// From now on `descriptor` tells: readable when the process has ended. Takes it over.
  void see_by(int process, int descriptor);

  void heard(int process, std::int64_t now) { peers_[index(process)].heard_ns = now; }
  /// The process has said that it leaves: its end is no loss.
  void said_goodbye(int process) { peers_[index(process)].left = true; }
  /// Its connection has ended: a loss, unless it had said goodbye.
  void connection_ended(int process);
  /// From now on those who give us signs of life are expected to: to process 0 everybody does, to
  /// the others process 0 alone.
  void expect_signs(std::int64_t now);
  void expect_none() { expects_signs_ = false; }

  /// What the kernel says. A process that has ended is lost once all that came until a moment later
  /// has been read: its goodbye may have been on its way.
  void look(std::int64_t now);
  /// All that has come has been read.
  void has_read_all(std::int64_t now) { read_all_ns_ = now; }
  /// A process has ended and may have said goodbye before.
  bool awaits_goodbye() const;
  /// Gives up those that have been silent for longer than this.
  void give_up_silent(std::int64_t now, std::int64_t silence_ns);
  bool is_lost(int process) const { return peers_[index(process)].lost; }
  bool has_left(int process) const { return peers_[index(process)].left; }
  /// One or the other: nobody is there who would hear or answer.
  bool is_gone(int process) const { return is_lost(process) || has_left(process); }
  /// The first process that is lost; -1: none.
  int first_lost() const;
  /// A process whose end the kernel has told, and that had not said goodbye; -1: none. Any thread,
  /// without a lock.
  int ended_process() const;
  /// "process 4711 on host a has ended".
  std::string how_lost(int process) const;

 private:
  struct Peer {
    std::atomic<int> sight{-1};
    std::int64_t heard_ns = 0, ended_ns = 0;  // 0: has not ended
    std::atomic<bool> left{false};
    bool lost = false;
    std::int64_t silent_ns = 0;  // lost by silence: for how long
    ProcessSite site;
  };
  static std::size_t index(int process) { return static_cast<std::size_t>(process); }
  bool gives_signs(int process) const { return process != own_ && (own_ == 0 || process == 0); }

  std::deque<Peer> peers_;
  const int own_;
  bool expects_signs_ = false;
  std::int64_t looked_ns_ = 0, read_all_ns_ = 0;
};

}  // namespace pipewright::exec::mpi
