#include "exec/devices/cuda/pool.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/error.hpp"

namespace pipewright::exec::cuda {

/// A block, and, while somebody holds it, the pool's state, which lives until the last one is back.
struct Pool::Lent final : Block {
  void come_back() noexcept override;

  std::size_t room = 0;  // at least its bytes
  std::vector<Event> guards;
  bool lacks_guard = false;  // another thread has dropped it
  std::shared_ptr<State> home;
};

struct Pool::State {
  using Blocks = std::map<std::size_t, std::vector<std::unique_ptr<Lent>>>;  // by room

  explicit State(PoolSource from) : source(std::move(from)) {}
  /// Whoever ends a run has waited for the streams before, so no guard is made any more.
  ~State() { release(free); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::unique_ptr<Lent> take_free(std::size_t room) {
    const std::scoped_lock lock(mutex);
    auto& blocks = free[room];
    if (blocks.empty()) return nullptr;
    std::unique_ptr<Lent> block = std::move(blocks.back());
    blocks.pop_back();
    return block;
  }

  std::unique_ptr<Lent> allocated(std::size_t room) {
    auto block = std::make_unique<Lent>();
    block->room = room;
    try {
      block->at = source.allocate(room);
    } catch (const RunError&) {
      if ((source.make_room ? source.make_room() : trim()) == 0) throw;
      block->at = source.allocate(room);
    }
    const std::scoped_lock lock(mutex);
    figures.reserved_bytes += static_cast<std::int64_t>(room);
    figures.peak_reserved_bytes = std::max(figures.peak_reserved_bytes, figures.reserved_bytes);
    return block;
  }

  void note_taken(std::size_t bytes) {
    const std::scoped_lock lock(mutex);
    figures.live_bytes += static_cast<std::int64_t>(bytes);
    figures.peak_bytes = std::max(figures.peak_bytes, figures.live_bytes);
  }

  void give_back(std::unique_ptr<Lent> block) {
    if (source.after_use) {
      const bool is_own = std::this_thread::get_id() == owner;
      if (is_own) block->guards.push_back(source.after_use());
      block->lacks_guard = !is_own;
    }
    const std::scoped_lock lock(mutex);
    figures.live_bytes -= static_cast<std::int64_t>(block->bytes);
    free[block->room].push_back(std::move(block));
  }

  /// All that must have passed before the block is used for something else.
  std::vector<Event> guards_of(Lent& block) const {
    if (std::exchange(block.lacks_guard, false)) block.guards.push_back(source.after_use());
    return std::exchange(block.guards, {});
  }

  std::int64_t trim() {
    Blocks going;
    {
      const std::scoped_lock lock(mutex);
      going.swap(free);
    }
    for (auto& [room, blocks] : going) {
      for (auto& block : blocks) block->guards = guards_of(*block);
    }
    const std::int64_t bytes = release(going);
    const std::scoped_lock lock(mutex);
    figures.reserved_bytes -= bytes;
    return bytes;
  }

  std::int64_t release(const Blocks& going) const {
    std::int64_t released = 0;
    for (const auto& [room, blocks] : going) {
      for (const auto& block : blocks) {
        for (const Event& guard : block->guards) {
          if (source.before_release) source.before_release(guard);
        }
        source.release(block->at);
        released += static_cast<std::int64_t>(room);
      }
    }
    return released;
  }

  const PoolSource source;
  const std::thread::id owner = std::this_thread::get_id();
  mutable std::mutex mutex;  // guards what follows
  Blocks free;
  PoolFigures figures;
};

void Pool::Lent::come_back() noexcept {
  const std::shared_ptr<State> state = std::move(home);
  state->give_back(std::unique_ptr<Lent>(this));
}

Pool::Pool(PoolSource source) : state_(std::make_shared<State>(std::move(source))) {}

Buffer Pool::take(std::size_t bytes, std::size_t room) {
  bytes = std::max<std::size_t>(bytes, 1);
  room = std::max(room, bytes);
  std::unique_ptr<Lent> block = state_->take_free(room);
  if (block == nullptr) block = state_->allocated(room);
  block->bytes = bytes;
  state_->note_taken(bytes);
  for (const Event& event : state_->guards_of(*block)) {
    if (state_->source.before_reuse) state_->source.before_reuse(event);
  }
  block->home = state_;
  return Buffer(*block.release());
}

std::int64_t Pool::trim() { return state_->trim(); }

void Pool::guard(const Buffer& buffer, Event event) {
  static_cast<Lent*>(buffer.block())->guards.push_back(std::move(event));
}

void Pool::forget_guards() {
  const std::scoped_lock lock(state_->mutex);
  for (auto& [room, blocks] : state_->free) {
    for (auto& block : blocks) {
      block->guards.clear();
      block->lacks_guard = false;
    }
  }
}

PoolFigures Pool::figures() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->figures;
}

}  // namespace pipewright::exec::cuda
