// The transport between ranks that are processes: rank r is process r of the Link. Each process
// keeps its own rank's half of every transfer (exec/transports/process/ends.hpp) and tells the
// other half what it has to know. docs/decisions/0010-mpi.md says why it is built like this.
//
// Threads: one lock, the Link's, guards everything, and only its holder calls the wire. Whoever
// waits looks for frames himself; while the rank computes, a thread of the transport does it now
// and then, so that a peer need not wait for the end of a computation. Time is the wall's, aligned
// with process 0.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "exec/runtime/part_table.hpp"
#include "exec/runtime/peers.hpp"
#include "exec/runtime/transport.hpp"
#include "exec/transports/local/exchange.hpp"
#include "exec/transports/process/ends.hpp"
#include "exec/transports/process/link.hpp"
#include "exec/transports/process/termination_detection.hpp"

namespace pipewright::exec::mpi {

inline RankId rank_of_process(int process) { return RankId(process); }
inline int process_of_rank(RankId rank) { return static_cast<int>(rank.value); }

class MpiTransport final : public Transport, public Peers {
 public:
  /// Program and link must outlive it; one at a time on a link. Throws InputError unless the job
  /// has a process for each rank. `check_parts`: parts of collectives carry a checksum.
  MpiTransport(const Program& program, local::MessageCosts costs, Link& link,
               bool check_parts = false);
  ~MpiTransport() override;

  std::int64_t now() const override;
  void sleep_until(RankId rank, std::int64_t deadline) override;

  std::vector<RankId> local_ranks() const override { return {rank_}; }
  Peers* peers() override { return this; }
  void meet(RankId rank, const std::function<void()>& between) override;
  void issue(RankId rank, InstructionId end, PayloadPtr data) override;
  void provide(RankId rank, InstructionId send, PayloadPtr data) override;
  void contribute(RankId rank, InstructionId member, PartPtr part) override;
  std::vector<PartPtr> gathered(RankId rank, InstructionId member) override;
  void wait(RankId rank, InstructionId id) override;
  PayloadPtr take(RankId rank, InstructionId recv) override;
  void stop() noexcept override;
  bool stands_still_within(std::int64_t timeout_ns) override;
  void end_watch() noexcept override;
  std::uint64_t ended_count() const override { return ended_count_.load(); }
  void report(Timeline& timeline, Progress& progress) const override;

  int process() const override { return link_.process(); }
  int processes() const override { return link_.processes(); }
  std::vector<PackedBytes> share(PackedBytes own) override;
  std::vector<ClockError> clocks() override;
  void post_progress(std::uint64_t ended) override;
  std::uint64_t progress_elsewhere() const override { return progress_elsewhere_.load(); }
  bool ended_elsewhere() const override { return ended_elsewhere_.load(); }
  EndOfRun end_elsewhere() const override;
  std::vector<LostRank> lost(std::int64_t silence_ns) override;
  void hand_in(PackedBytes final_state, EndOfRun end) noexcept override;
  std::vector<PackedBytes> handed_in(std::int64_t timeout_ns) override;

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Done = std::function<bool()>;

  std::mutex& mutex() const { return link_.mutex(); }
  bool is_own(InstructionId id) const { return begin_ <= id && id < end_; }
  void throw_if_stopped() const;

  // All of these with the lock held.
  void turn();
  void settle();
  void handle(ArrivedFrame& arrived);
  void handle_step(Frame& frame);
  void handle_run(ArrivedFrame& arrived);
  void flush();
  Frame frame_of(FrameKind kind, InstructionId id = kNoInstruction) const;
  void post(int to, Frame frame);
  void post_to_all(const Frame& frame);
  void tell(Outgoing out);
  void take_part(Frame& frame);
  void join(int process, PackedBytes bytes);
  void begin_step(std::int64_t began_there_ns);
  void look_for_quiet(std::int64_t now);
  MessageCounts message_counts() const;
  bool has_deserted(int process) const;
  void learn_counts(int process, std::uint64_t question, const MessageCounts& state);

  void block_until(Lock& lock, const Done& done);
  std::vector<PackedBytes> come_together(Lock& lock, PackedBytes own);
  void serve();

  const Program& program_;
  Link& link_;
  const bool check_parts_;
  const std::uint64_t program_seal_;
  const LinkRun run_;
  const RankId rank_;
  const InstructionId begin_, end_;

  // Guarded by the link's mutex.
  Ends ends_;
  PartTable parts_;
  std::uint32_t epoch_ = 0;
  std::vector<Frame> early_;                        // of steps that this process has not begun
  std::uint64_t sent_ = 0, received_ = 0;           // frames that move the run
  const Done* blocked_ = nullptr;                   // what the rank waits for, while it waits
  std::string damage_;                              // a part came damaged: the sentence
  std::vector<std::optional<PackedBytes>> joined_;  // process 0: by process
  std::vector<PackedBytes> all_joined_;
  std::int64_t all_joined_ns_ = 0;        // on the clock of process 0
  std::uint64_t meetings_ = 0, met_ = 0;  // asked for, and over
  TerminationDetection quiet_search_;
  std::int64_t asked_ns_ = 0, blocked_since_ns_ = 0;
  std::vector<std::optional<PackedBytes>> final_states_;  // process 0: by process
  std::vector<std::uint64_t> progress_;                   // process 0: by process
  std::int64_t posted_ns_ = 0;
  EndOfRun own_end_, end_elsewhere_;
  bool stuck_ = false, watch_ended_ = false;
  std::condition_variable watch_;

  std::atomic<bool> stopped_{false}, ended_elsewhere_{false}, over_{false}, rank_looks_{false};
  std::atomic<std::int64_t> begin_ns_{0};  // of the step, on this process's steady clock
  std::atomic<std::uint64_t> ended_count_{0}, progress_elsewhere_{0};
  std::atomic<std::uint64_t> frames_{0};  // that have come, for the serving thread's patience
  std::thread server_;
};

}  // namespace pipewright::exec::mpi
