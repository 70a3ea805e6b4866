// Memory of a GPU for activations, gradients and messages: blocks that go back to their pool when
// the last handle is dropped and are handed out again to whoever asks for exactly that size, so a
// training step allocates nothing once the first one is over. Where the memory comes from is the
// caller's affair, so a pool can be used, and tested, on the host.
//
// A block is given back when the host is done with it, long before the GPU is. That is right as
// long as one stream uses it before and after. For all else there are guards: events that must have
// passed before the block is used again. Handles may be dropped by any thread and may outlive the
// pool object; everything else is called by the thread that made the pool. Sizes are in bytes.
//
// Where the source has no memory left, the blocks that nobody holds go back to it, and it is asked
// once more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "exec/base/buffer.hpp"
#include "exec/devices/cuda/events.hpp"

namespace pipewright::exec::cuda {

/// Where a pool's memory comes from, and what has to happen around its reuse. Functions may be
/// empty but for the first two. All but `release` are called by the pool's own thread: a block that
/// another thread has dropped is guarded by after_use when it is taken again.
struct PoolSource {
  std::function<void*(std::size_t bytes)> allocate;  // throws RunError, never null
  std::function<void(void*)> release;
  std::function<void(const Event&)> before_reuse;    // whoever takes the block waits for the event
  std::function<Event()> after_use;                  // a guard for a block that has come back
  std::function<void(const Event&)> before_release;  // the memory goes: wait for the guard
  /// allocate has failed: bytes that were given back to the source. Empty: this pool's trim().
  std::function<std::int64_t()> make_room;
};

struct PoolFigures {
  std::int64_t live_bytes = 0;      // that somebody holds now
  std::int64_t peak_bytes = 0;      // the most there were at once
  std::int64_t reserved_bytes = 0;  // of the source now, whether somebody holds them or not
  std::int64_t peak_reserved_bytes = 0;
};

class Pool {
 public:
  explicit Pool(PoolSource source);

  /// A block of exactly so many bytes (at least 1) with undefined content. `room`: of the memory
  /// behind it, if that is more, so that one is used again for blocks of several sizes.
  Buffer take(std::size_t bytes, std::size_t room = 0);
  Buffer take_floats(std::size_t n) { return take(n * sizeof(float)); }
  PoolFigures figures() const;
  /// The blocks that nobody holds go back to the source, when their guards have passed: it waits.
  /// The bytes.
  std::int64_t trim();
  /// The block of this buffer, which a Pool has lent, is not used again before this event. By
  /// whoever holds the last handle.
  static void guard(const Buffer& buffer, Event event);
  /// Of the blocks that nobody holds: what their guards wait for is over.
  void forget_guards();

 private:
  struct State;
  struct Lent;
  std::shared_ptr<State> state_;
};

}  // namespace pipewright::exec::cuda
