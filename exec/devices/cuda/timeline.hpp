// When a rank's work ran on its GPU, by events around it, in the time of the step. Events tell the
// time since another event in floats of milliseconds, which are too coarse after some seconds, so
// each step has a base of its own, whose time on the host's clock is measured while the GPU stands
// still: between the moments before and after it was recorded and seen.
//
// One for each rank, used by its thread. What others read of transfers stands in TransferSpans
// while all ranks stand still.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "core/timeline/timeline.hpp"
#include "exec/devices/cuda/queue.hpp"
#include "exec/runtime/transport.hpp"

namespace pipewright::exec::cuda {

/// Of all ranks of this process, by instruction: a RECV's and its SEND's, kNotEnded where no GPU
/// has moved it. A rank writes those of the messages it takes.
struct TransferSpans {
  mutable std::mutex mutex;  // a rank writes while the watchdog may look
  explicit TransferSpans(std::size_t instructions)
      : moving(instructions, kNotEnded), end(instructions, kNotEnded) {}
  /// Overwrites the times of transfers that have one here: the host enqueues a transfer long before
  /// its data is there.
  void write(Timeline& timeline) const;

  std::vector<std::int64_t> moving, end;
};

class DeviceTimeline {
 public:
  DeviceTimeline(Queue& queue, const Clock& clock) : queue_(queue), clock_(clock) {}

  /// Nothing is under way on the queue. Replayed: the work, and its events, are the last step's.
  void begin_step(bool is_replayed = false);
  Event mark(void* stream) { return queue_.mark(stream); }
  void note_computation(InstructionId id, Event start, Event end);
  /// `also_partner`: the other end of the transfer was moved then too; else its own rank says when.
  void note_transfer(InstructionId end, Event start, Event over, bool also_partner);
  /// Waits for the transfers that streams of others than the queue have moved.
  void finish_transfers(const std::function<void()>& between) const;
  /// Reads the times. All of it is done, and the step's clock still runs.
  void end_step();

  /// What is added to a time of the host's steady clock for the step's, as of end_step().
  std::int64_t to_step_ns() const { return to_step_ns_; }

  /// Of each computation.
  void tell(const std::function<void(InstructionId, std::int64_t ns)>& told) const;
  void write(Timeline& timeline) const;
  void write(const Program& program, TransferSpans& times) const;

 private:
  struct Span {
    InstructionId id;
    Event start, end;
    std::int64_t from = 0, to = 0;
    bool also_partner = false;
  };
  void read(Span& span) const;

  Queue& queue_;
  const Clock& clock_;
  Event base_;
  std::int64_t base_ns_ = 0;  // the base's time on the steady clock
  std::int64_t to_step_ns_ = 0;
  std::vector<Span> computations_, transfers_;
};

}  // namespace pipewright::exec::cuda
