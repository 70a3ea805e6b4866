// The job that this process is part of: the wire to the others, who is still there, and how far
// their clocks are apart. One Link a process, for any number of runs, one after another or beside
// one another; every process has to begin the same runs in the same order.
//
// Threads: whoever calls holds mutex(), but for the constructor and close(). No call waits, but for
// these two, measure_clock() and wait_for_failure(). A thread of the link gives signs of life from
// the constructor to close(), whatever the process does meanwhile.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "exec/transports/process/clock_offset.hpp"
#include "exec/transports/process/presence.hpp"
#include "exec/transports/process/wire.hpp"
#include "exec/transports/process/witness.hpp"

namespace pipewright::exec::mpi {

struct LinkOptions {
  bool measure_clock = false;               // also where it is known to be the same clock
  bool ask_kernel = true;                   // see Presence
  std::int64_t silence_ns = 4'000'000'000;  // shorter silences mean nothing
  std::int64_t connect_ns = 60'000'000'000;
  const std::atomic<bool>* interrupted = nullptr;  // ends the wait for the others; may be null
};

/// Why a process has given up: the status that its command ends with, and the sentence.
struct Failure {
  int status = 0;
  std::string text;
};

class Link {
 public:
  /// Sends something to everybody and waits for everybody's, so that every connection is open
  /// before a run begins. Throws MachineError if somebody does not come, or the user interrupts,
  /// and RunError as soon as somebody is lost.
  explicit Link(std::unique_ptr<Wire> wire, LinkOptions options = {});
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  int process() const { return wire_->process(); }
  int processes() const { return wire_->processes(); }
  std::mutex& mutex() { return mutex_; }

  /// The number of the run that begins now.
  std::uint32_t begin_run();
  void end_run(std::uint32_t run);
  /// Of the run: the next frame that came. Frames of runs that are over are dropped, those of other
  /// runs are kept for them.
  std::optional<ArrivedFrame> receive(std::uint32_t run);
  /// Tokens of the run's frames (LinkRun::token()) that are out of our hands since the last call.
  std::vector<std::uint64_t> take_sent(std::uint32_t run);
  void send(int to, Frame frame);
  Wire& wire() { return *wire_; }
  Presence& presence() { return *presence_; }
  /// Whether these processes can share memory.
  bool are_on_one_machine(std::span<const int> processes) const;
  /// Asks the kernel who is still there.
  void look_around();
  /// Those that have been silent for longer than this, and than LinkOptions allows, are lost.
  void give_up_silent(std::int64_t silence_ns);

  /// Tells all others why this process gives up.
  void say_failure(const Failure& failure);
  /// What that process has said so; nullopt: nothing.
  const std::optional<Failure>& failure_of(int process) const {
    return failures_[static_cast<std::size_t>(process)];
  }
  /// Waits until that process (nullopt: one of the others) has said so or all of them are gone, at
  /// most so long. Takes mutex() by itself.
  void wait_for_failure(std::optional<int> process, std::int64_t timeout_ns);

  /// Of this process, when the link was made.
  ClockOffset clock() const { return clock_; }
  /// Once more. Process 0 has to be receiving meanwhile. Takes mutex() by itself.
  ClockOffset measure_clock();

  /// Waits until all others close too, and leaves the job. False if somebody was lost: then the
  /// process should end without asking MPI for anything more.
  bool close();

 private:
  void greet();
  template <class Done>
  void wait_for_others(const Done& done, std::int64_t deadline_ns);
  bool asks_kernel() const { return options_.ask_kernel && !wire_->sees_ends(); }
  Witnesses& witnesses();
  void look_for_witnesses();
  void give_signs(const std::stop_token& stop);
  std::optional<ArrivedFrame> receive_any();
  bool answer(ArrivedFrame& arrived);
  void part_with(int process);
  void collect_sent();
  template <class Done>
  bool receive_until(const Done& done, std::int64_t deadline_ns);

  std::mutex mutex_;
  std::unique_ptr<Wire> wire_;
  const LinkOptions options_;
  std::unique_ptr<Presence> presence_;
  std::vector<std::optional<ProcessSite>> sites_;
  // A goodbye says how many frames went before it: it may overtake them.
  struct Exchanged {
    std::uint64_t sent = 0, received = 0;
    std::optional<std::uint64_t> before_goodbye;
  };
  std::vector<Exchanged> exchanged_;              // by process
  int measured_ = 0;                              // processes that have measured their clocks
  std::vector<std::optional<Failure>> failures_;  // by process
  std::optional<Witnesses> witnesses_;
  std::optional<std::int64_t> pong_there_ns_;
  ClockOffset clock_;
  std::uint32_t next_run_ = 0;
  std::set<std::uint32_t> runs_;     // under way
  std::deque<ArrivedFrame> others_;  // that came while another run received
  std::vector<std::uint64_t> sent_;  // tokens that nobody has asked for yet
  bool closed_ = false;
  std::condition_variable_any sign_due_;
  std::jthread signs_;  // the last member: it uses the others
};

/// A run of the link, until it goes. Takes the link's mutex by itself.
class LinkRun {
 public:
  explicit LinkRun(Link& link);
  ~LinkRun();
  LinkRun(const LinkRun&) = delete;
  LinkRun& operator=(const LinkRun&) = delete;

  std::uint32_t number() const { return number_; }
  /// Of a frame of the run; `what` is the run's affair.
  std::uint64_t token(std::uint32_t what) const { return std::uint64_t{number_} << 32U | what; }

 private:
  Link& link_;
  const std::uint32_t number_;
};

}  // namespace pipewright::exec::mpi
