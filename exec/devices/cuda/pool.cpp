#include "exec/devices/cuda/pool.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace pipewright::exec::cuda {

/// A block, and, while somebody holds it, the pool's state, which lives until the last one is back.
struct Pool::Lent final : Block {
  void come_back() noexcept override;

  std::vector<Event> guards;
  std::shared_ptr<State> home;
};

struct Pool::State {
  explicit State(PoolSource from) : source(std::move(from)) {}
  ~State() {
    for (const auto& [bytes, blocks] : free) {
      for (const auto& block : blocks) {
        for (const Event& guard : block->guards) {
          if (source.before_release) source.before_release(guard);
        }
        source.release(block->at);
      }
    }
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::unique_ptr<Lent> take_free(std::size_t bytes) {
    const std::scoped_lock lock(mutex);
    figures.live_bytes += static_cast<std::int64_t>(bytes);
    figures.peak_bytes = std::max(figures.peak_bytes, figures.live_bytes);
    auto& blocks = free[bytes];
    if (blocks.empty()) {
      figures.reserved_bytes += static_cast<std::int64_t>(bytes);
      return nullptr;
    }
    std::unique_ptr<Lent> block = std::move(blocks.back());
    blocks.pop_back();
    return block;
  }

  void give_back(std::unique_ptr<Lent> block) {
    if (source.after_use) block->guards.push_back(source.after_use());
    const std::scoped_lock lock(mutex);
    figures.live_bytes -= static_cast<std::int64_t>(block->bytes);
    free[block->bytes].push_back(std::move(block));
  }

  PoolSource source;
  mutable std::mutex mutex;  // guards what follows
  std::map<std::size_t, std::vector<std::unique_ptr<Lent>>> free;
  PoolFigures figures;
};

void Pool::Lent::come_back() noexcept {
  const std::shared_ptr<State> state = std::move(home);
  state->give_back(std::unique_ptr<Lent>(this));
}

Pool::Pool(PoolSource source) : state_(std::make_shared<State>(std::move(source))) {}

Buffer Pool::take(std::size_t bytes) {
  bytes = std::max<std::size_t>(bytes, 1);
  std::unique_ptr<Lent> block = state_->take_free(bytes);
  if (block == nullptr) {
    block = std::make_unique<Lent>();
    block->bytes = bytes;
    block->at = state_->source.allocate(bytes);
  }
  for (const Event& event : std::exchange(block->guards, {})) {
    if (state_->source.before_reuse) state_->source.before_reuse(event);
  }
  block->home = state_;
  return Buffer(*block.release());
}

void Pool::guard(const Buffer& buffer, Event event) {
  static_cast<Lent*>(buffer.block())->guards.push_back(std::move(event));
}

void Pool::forget_guards() {
  const std::scoped_lock lock(state_->mutex);
  for (auto& [bytes, blocks] : state_->free) {
    for (auto& block : blocks) block->guards.clear();
  }
}

PoolFigures Pool::figures() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->figures;
}

}  // namespace pipewright::exec::cuda
