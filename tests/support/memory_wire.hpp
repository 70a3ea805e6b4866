// A Wire between threads of one process, for what should be seen without MPI: under
// ThreadSanitizer, with frames that arrive in any order, and with damage done on the way. And one
// around another, for what is read late.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "exec/transports/process/wire.hpp"
#include "tests/reference/random_order.hpp"

namespace pipewright::test {

/// Where the frames of all processes lie until they are fetched. `shuffle`: a frame may overtake
/// others, as the order of frames is promised to nobody.
class MemoryHub {
 public:
  MemoryHub(int processes, bool shuffle, std::uint64_t seed = 1)
      : boxes_(static_cast<std::size_t>(processes)), shuffle_(shuffle), dice_(seed) {}

  int processes() const { return static_cast<int>(boxes_.size()); }
  /// Called with each frame that is sent, before it arrives.
  std::function<void(int to, exec::mpi::Frame&)> on_the_way;

  void put(int to, exec::mpi::ArrivedFrame arrived) {
    const std::scoped_lock lock(mutex_);
    if (on_the_way) on_the_way(to, arrived.frame);
    boxes_[static_cast<std::size_t>(to)].push_back(std::move(arrived));
  }
  std::optional<exec::mpi::ArrivedFrame> fetch(int process) {
    const std::scoped_lock lock(mutex_);
    auto& box = boxes_[static_cast<std::size_t>(process)];
    if (box.empty() || (shuffle_ && dice_.chance(30))) return std::nullopt;
    const int which = shuffle_ ? dice_.below(static_cast<int>(box.size())) : 0;
    exec::mpi::ArrivedFrame arrived = std::move(box[static_cast<std::size_t>(which)]);
    box.erase(box.begin() + which);
    return arrived;
  }
  bool is_empty(int process) {
    const std::scoped_lock lock(mutex_);
    return boxes_[static_cast<std::size_t>(process)].empty();
  }

 private:
  std::mutex mutex_;
  std::vector<std::vector<exec::mpi::ArrivedFrame>> boxes_;
  const bool shuffle_;
  reference::Dice dice_;
};

class MemoryWire final : public exec::mpi::Wire {
 public:
  MemoryWire(MemoryHub& hub, int process) : hub_(hub), process_(process) {}

  int process() const override { return process_; }
  int processes() const override { return hub_.processes(); }
  void send(int to, exec::mpi::Frame frame) override {
    if (frame.token != exec::mpi::kNoToken) sent_.push_back(frame.token);
    hub_.put(to, {process_, std::move(frame)});
  }
  std::optional<exec::mpi::ArrivedFrame> receive() override { return hub_.fetch(process_); }
  std::vector<std::uint64_t> take_sent() override { return std::exchange(sent_, {}); }
  bool is_at_rest() const override { return sent_.empty(); }
  void close() override {}

 private:
  MemoryHub& hub_;
  const int process_;
  std::vector<std::uint64_t> sent_;
};

/// Does what the inner one does; a test overrides what should differ.
class WireAround : public exec::mpi::Wire {
 public:
  explicit WireAround(std::unique_ptr<exec::mpi::Wire> inner) : inner_(std::move(inner)) {}

  int process() const override { return inner_->process(); }
  int processes() const override { return inner_->processes(); }
  void send(int to, exec::mpi::Frame frame) override { inner_->send(to, std::move(frame)); }
  std::optional<exec::mpi::ArrivedFrame> receive() override { return inner_->receive(); }
  std::vector<std::uint64_t> take_sent() override { return inner_->take_sent(); }
  bool is_at_rest() const override { return inner_->is_at_rest(); }
  void close() override { inner_->close(); }

 protected:
  const std::unique_ptr<exec::mpi::Wire> inner_;
};

}  // namespace pipewright::test
