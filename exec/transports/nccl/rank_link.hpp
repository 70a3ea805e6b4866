// A rank's side of NCCL: its communicators, made and connected in the order of the plan, the
// streams of its queues, and the calls of its transfer ends and of its sums and gathers over
// other ranks (exec/transports/nccl/calls.hpp says which; here they are made as the rank comes to
// them). Made and used by the rank's thread, which is the only one that calls NCCL for its GPU;
// abort(), report and count may be asked by any thread.
//
// Communicators do not block: after each call the rank polls until NCCL has taken it, so a stopped
// run gets out of it. NCCL starts a thread for each call then, or for each group of calls, so ends
// that the list has one after another are one group, as long as each is on a communicator of its
// own: calls of one communicator in a group would end together, which is not what the list says.
// What fails is a RunError with NCCL's words.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "exec/devices/cuda/payload.hpp"
#include "exec/devices/cuda/pinned.hpp"
#include "exec/devices/cuda/queue.hpp"
#include "exec/devices/cuda/step_graph.hpp"
#include "exec/devices/cuda/timeline.hpp"
#include "exec/transports/nccl/communicators.hpp"
#include "exec/transports/nccl/library.hpp"
#include "exec/transports/nccl/unique_ids.hpp"

namespace pipewright::exec::nccl {

/// What the rank's device lends, until the link's last call.
struct DeviceSide {
  cuda::Queue* queue = nullptr;
  cuda::DeviceTimeline* timeline = nullptr;
  std::function<std::size_t(InstructionId recv)> message_bytes;
  /// Before work is put on the rank's streams in a step.
  std::function<void()> enter;
};

class RankLink {
 public:
  /// `between` is called while it polls, and may throw.
  RankLink(const pipewright_nccl& nccl, const Program& program, const CommunicatorPlan& plan,
           RankId rank, std::function<void()> between);
  ~RankLink();
  RankLink(const RankLink&) = delete;
  RankLink& operator=(const RankLink&) = delete;

  /// Makes the communicators and connects them; waits for the other ranks.
  void join(DeviceSide device, const std::vector<UniqueId>& ids);
  void begin_step();
  /// In a step that is replayed all calls are in its graph: none is made, and each counts as made.
  /// Of one that is captured nobody may ask what has ended.
  void goes(cuda::StepWay way) { way_.store(way); }

  /// As Transport's.
  void issue(InstructionId end, PayloadPtr data);
  void provide(InstructionId send, PayloadPtr data);
  bool is_called(InstructionId end) const;
  /// Makes the calls that are held back for a group. Before the rank waits for one of them.
  void close_batch();
  PayloadPtr take(InstructionId recv);

  /// What this rank brings to a REDUCE_GRAD, REDUCE_NORM or REDUCE_TIED that NCCL sums, to an
  /// UNSHARD that it gathers, or to the sum of a group.
  void contribute(InstructionId member, std::shared_ptr<const cuda::DevicePart> part);
  /// Whether it has brought that in this step. Any thread.
  bool is_sum(InstructionId member) const;
  /// Its call, in place, is made when those of no group that the list has before it are; that of a
  /// group at once. But rows that members exchange without knowing yet how many come, whose counts
  /// go ahead: these are sent by finish_counting(), which waits for the counts. Before the rank
  /// waits for such a call; where it waits for another one, as soon as has_counted(). One that goes
  /// by way of the hosts is issued here, too, so that those behind it are called.
  void issue_sum(InstructionId member);
  bool has_counted() const;
  void finish_counting();
  /// Once: the link lets go of the part's memory.
  PartPtr sum(InstructionId member);
  /// Throws RunError if a communicator has failed behind our back.
  void look_at_communicators();
  /// What NCCL has taken of the GPU's memory, as far as the driver tells.
  std::int64_t library_bytes() const { return library_bytes_; }

  /// Any thread. Ends what is under way on all communicators, for good.
  void abort() noexcept;
  bool has_ended(InstructionId end) const;
  std::uint64_t ended_count() const;

 private:
  struct Waiting {
    InstructionId end;
    PayloadPtr data;
    bool is_ready;
  };
  /// A call that is to be made, until the event behind it is recorded.
  struct Made {
    InstructionId end;
    std::unique_ptr<cuda::DevicePayload> payload;
    cuda::Event start;
  };

  const Instruction& code(InstructionId id) const { return program_.code[id]; }
  std::uint32_t communicator_of(InstructionId end) const { return plan_.of_route[code(end).route]; }
  void* stream_of(InstructionId end) const;
  bool is_grouped() const { return program_.policy.issue == Issue::Grouped; }
  bool ends_run(InstructionId end) const;
  bool is_replayed() const { return way_.load() == cuda::StepWay::Replayed; }

  void make(std::uint32_t communicator, const UniqueId& id);
  void warm_up(const WarmUp& what, const Buffer& scratch);
  void settle(std::uint32_t communicator);
  /// A call of NCCL under the lock; Stopped by `between` if it was aborted.
  void call(const std::function<int()>& function, const char* what);
  void flush(std::uint32_t communicator);
  void make_room_in_batch(InstructionId end);
  void prepare_call(InstructionId end, PayloadPtr data);
  void make_call(const Made& made);
  void wait_for_turn(InstructionId end, const cuda::Event& ready);
  void finish_call(Made made);
  cuda::Event note_call(InstructionId id, cuda::Event start);
  /// What a member sends to each of its group, itself included, and gets from each, one after
  /// another.
  struct PartsOfMembers {
    const std::byte* out = nullptr;
    std::byte* in = nullptr;
    std::vector<std::size_t> bytes_out, bytes_in;  // by member
  };
  void make_sum(InstructionId member);
  /// What the members of a communicator have alike of a stage.
  struct ArrayOfReplicas {
    std::uint32_t communicator = kNoCommunicator;
    std::byte* at = nullptr;
    std::size_t bytes = 0;
    bool is_scattered = false;  // each member is left with its part of the sum
  };
  std::vector<ArrayOfReplicas> arrays_of(InstructionId member, const cuda::DevicePart& part) const;
  int call_collective(InstructionId member, const ArrayOfReplicas& array, void* stream) const;
  int call_group(InstructionId member, const cuda::ArrayOfGroup& array, void* stream) const;
  void send_round(InstructionId member, const cuda::RoundOfGroup& round, void* stream);
  void begin_on(void* stream) const;
  void begin_counting(InstructionId member, ExchangeOfMembers& rows, void* stream);
  void exchange_rows(InstructionId member, const cuda::DevicePart& part);
  void send_to_all(std::uint32_t communicator, const PartsOfMembers& parts, void* stream);

  const pipewright_nccl& nccl_;
  const Program& program_;
  const CommunicatorPlan& plan_;
  const RankId rank_;
  const InstructionId begin_, end_;
  const std::function<void()> between_;
  const LaneTable lanes_;
  /// By communicator: NCCL keeps the pointers, and reads them on threads of its own
  /// (init.cc, ncclProfilerPluginInit).
  const std::vector<std::string> names_;
  std::int64_t library_bytes_ = 0;
  DeviceSide device_;
  const pipewright_cuda* cuda_ = nullptr;  // the device goes before the link does
  int gpu_ = 0;
  std::vector<void*> streams_;                            // by lane; 0 is the queue's own
  const std::vector<InstructionId> places_;               // places_in_flight()
  std::map<std::uint32_t, std::deque<Waiting>> waiting_;  // by communicator: first in, first called
  std::vector<Made> batch_;                               // prepared, and not made yet
  std::vector<PayloadPtr> received_;                      // by instruction of the list
  std::vector<InstructionId> sums_;                       // all that are of no group, as listed
  std::size_t next_sum_ = 0;                              // of sums_: those before are called
  std::vector<std::uint8_t> issued_sums_;                 // by instruction of the list
  /// An exchange whose counts are on their way.
  struct Counting {
    InstructionId member;
    ExchangeOfMembers* rows;
    Buffer out, in;
    cuda::Event start, there;
  };
  cuda::Pinned<std::int32_t> counts_;
  std::optional<Counting> counting_;

  mutable std::mutex mutex_;          // guards what follows, and every call of NCCL
  std::vector<void*> communicators_;  // by the plan; null where the rank is no member
  bool aborted_ = false;
  std::atomic<cuda::StepWay> way_{cuda::StepWay::Enqueued};
  std::vector<std::shared_ptr<const cuda::DevicePart>> parts_;  // by instruction of the list
  std::vector<cuda::Event> behind_;  // by instruction of the list; null: not called
  std::vector<cuda::Event> called_;  // of the step, in the order of calls
  mutable std::size_t over_ = 0;     // of called_: the first so many have passed
  std::uint64_t ended_before_ = 0;   // in the steps before
};

}  // namespace pipewright::exec::nccl
