// How ranks meet: the transfers of a Program, and the clock by which they are timed.
//
// The runtime calls a Transport from one thread for each rank that lives in this process (all of
// them for `local`; one for a transport between processes). It only ever *issues* a transfer end
// and *waits* for one: the queues, the matching, rendezvous and credit (docs/semantics.md §2.1, §4)
// belong to the Transport. Every call that may wait throws Stopped once stop() was called, from
// any thread, so that no rank stays in a wait. Times are nanoseconds from the step's start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/program/program.hpp"
#include "core/program/wait_for.hpp"
#include "core/timeline/timeline.hpp"
#include "exec/base/checksum.hpp"

namespace pipewright::exec {

/// Thrown out of a wait when the run is being stopped; the runtime alone catches it.
struct Stopped {};

enum class MemoryKind : std::uint8_t { Host, Device };

/// What a transfer carries: an activation or a gradient. Owned by one side at a time: the device
/// that made it, then the transport, then the device that takes it. A device with streams derives
/// from it and adds the event after which the data may be read.
class Payload {
 public:
  virtual ~Payload() = default;
  virtual std::byte* data() = 0;
  virtual std::size_t size() const = 0;  // bytes
  virtual MemoryKind memory() const = 0;
};
using PayloadPtr = std::unique_ptr<Payload>;

/// Floats in host memory. All that goes to another process goes as one of these.
class HostPayload : public Payload {
 public:
  explicit HostPayload(std::vector<float> v, std::vector<std::byte> n = {})
      : values(std::move(v)), note(std::move(n)) {}
  std::byte* data() override { return reinterpret_cast<std::byte*>(values.data()); }
  std::size_t size() const override { return values.size() * sizeof(float); }
  MemoryKind memory() const override { return MemoryKind::Host; }

  std::vector<float> values;
  std::vector<std::byte> note;            // what a device wants to say of them; small
  std::optional<std::uint64_t> checksum;  // a checksum of both (exec/base/checksum.hpp)
};

inline std::uint64_t checksum_of(const HostPayload& payload) {
  return checksum_of(payload.note, payload.values);
}

/// What a member brings to a collective; read by all members, written by nobody once it was handed
/// in.
class Part {
 public:
  virtual ~Part() = default;
  /// The same for another process. Only a transport between processes asks, once a part; what
  /// arrives there is a PackedPart.
  virtual HostPayload pack() const = 0;
};
using PartPtr = std::shared_ptr<const Part>;

/// A part as another process has packed it. The device that reads it knows how.
class PackedPart final : public Part {
 public:
  explicit PackedPart(HostPayload what) : payload(std::move(what)) {}
  HostPayload pack() const override { return payload; }

  HostPayload payload;
};

/// Time as the ranks see it.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::int64_t now() const = 0;
  /// Lets time pass on a rank's compute lane. Throws Stopped.
  virtual void sleep_until(RankId rank, std::int64_t deadline) = 0;
};

class Peers;

class Transport : public Clock {
 public:
  /// The other processes of the run (exec/runtime/peers.hpp); null if all ranks are threads of this
  /// one.
  virtual Peers* peers() { return nullptr; }

  /// The ranks that live in this process, ascending; the runtime starts a thread for each.
  virtual std::vector<RankId> local_ranks() const = 0;

  /// All ranks wait here for one another, then `between` runs once in each process while all stand
  /// still, also if the run is stopped meanwhile, then a step begins: nothing is issued, nothing
  /// has ended, the time is 0. Throws Stopped, and whatever `between` throws on the rank that ran
  /// it.
  virtual void meet(RankId rank, const std::function<void()>& between) = 0;

  /// The rank's compute lane has reached the transfer end. Takes no time. A SEND's data may be null
  /// if it is not there yet; provide() hands it in later. A member of a collective comes here too,
  /// with null, once its inputs have ended and its part has been contributed; it stands in line
  /// behind the members that the rank's list has before it.
  virtual void issue(RankId rank, InstructionId end, PayloadPtr data) = 0;
  virtual void provide(RankId rank, InstructionId send, PayloadPtr data) = 0;
  /// The rank's part of the collective that `member`, an instruction of its own list, belongs to.
  /// Handed in before the member is issued. Never waits. A transport that has not learnt
  /// collectives refuses with an InputError.
  virtual void contribute(RankId rank, InstructionId member, PartPtr part);
  /// The parts of all members, by rank, ascending; once a step, when `member` has ended. Each
  /// member sums by itself. Throws Stopped.
  virtual std::vector<PartPtr> gathered(RankId rank, InstructionId member);
  /// Returns when the transfer end, or the member of a collective, has ended; a transport with
  /// streams may return earlier, when what the payload's event says is enough to go on. Waiting for
  /// a computation of the rank itself never ends: that is how an order whose input stands further
  /// down in its own list hangs. Throws Stopped.
  virtual void wait(RankId rank, InstructionId id) = 0;
  /// What an ended RECV brought; once.
  virtual PayloadPtr take(RankId rank, InstructionId recv) = 0;
  /// Whether issue() of a RECV puts work on the device; else the device does when it accepts what
  /// has come.
  virtual bool receives_when_issued() const { return false; }

  /// Ends all waits, those to come as well. Any thread, any number of times.
  virtual void stop() noexcept = 0;

  /// For the watchdog. Returns true as soon as it is certain that nothing can ever happen again (a
  /// transport that cannot know never says so), false when the timeout is over or end_watch() was
  /// called.
  virtual bool stands_still_within(std::int64_t timeout_ns) = 0;
  virtual void end_watch() noexcept = 0;
  /// The rank sleeps until a time that cannot come before other ranks go on (a clock that stands
  /// still while one of them works). It is not this rank that is slow.
  virtual bool awaits_time(RankId rank) const {
    static_cast<void>(rank);
    return false;
  }
  /// Transfer ends and members of collectives that have ended since the beginning of the run.
  virtual std::uint64_t ended_count() const = 0;

  /// Writes what it knows of its transfer ends, as of now. Any thread; the two belong to the
  /// caller.
  virtual void report(Timeline& timeline, Progress& progress) const = 0;
};

}  // namespace pipewright::exec
